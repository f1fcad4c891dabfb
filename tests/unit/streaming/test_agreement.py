from adapters.streaming.agreement import LocalAgreement
from core.transcript import Word


def words(text, *, start_ms=0):
    return [
        Word(text=word, start_ms=start_ms + 300 * at, end_ms=start_ms + 300 * at + 250)
        for at, word in enumerate(text.split())
    ]


def texts(confirmed):
    return " ".join(word.text for word in confirmed)


def test_a_word_is_confirmed_when_two_steps_agree_up_to_it():
    agreement = LocalAgreement()
    assert texts(agreement.update(words("and so my fellow"))) == ""
    assert texts(agreement.update(words("and so my fellow Americans"))) == "and so my fellow"
    assert texts(agreement.update(words("and so my fellow Americans ask"))) == "Americans"
    assert texts(agreement.finish()) == "ask"


def test_what_is_confirmed_is_neither_repeated_nor_changed():
    agreement = LocalAgreement()
    agreement.update(words("the cat sat"))
    assert texts(agreement.update(words("the cat sit"))) == "the cat"
    assert texts(agreement.update(words("the caterpillar sits"))) == ""
    assert texts(agreement.update(words("the cat sits on"))) == "sits"
    assert texts(agreement.finish()) == "on"


def test_case_and_punctuation_do_not_disagree():
    agreement = LocalAgreement()
    agreement.update(words("hello world"))
    assert texts(agreement.update(words("Hello, world. Again"))) == "Hello, world."


def test_words_before_the_confirmed_end_are_dropped_when_the_audio_was_cut():
    agreement = LocalAgreement()
    agreement.update(words("one two three four"))
    agreement.update(words("one two three four"))
    assert agreement.confirmed_until_ms == 1150
    # The next window begins inside "four", whose time the model now puts a little later.
    assert texts(agreement.update(words("four five", start_ms=1100))) == ""
    assert texts(agreement.update(words("four five six", start_ms=1100))) == "five"


def test_times_that_move_neither_lose_nor_repeat_a_word():
    agreement = LocalAgreement()
    agreement.update(words("and so my fellow Americans"))
    agreement.update(words("and so my fellow citizens"))
    later = words("and so my fellow Americans ask not", start_ms=700)
    assert texts(agreement.update(later)) == ""
    earlier = words("and so my fellow Americans ask not what", start_ms=0)
    assert texts(agreement.update(earlier)) == "Americans ask not"
    assert texts(agreement.finish()) == "what"


def test_characters_are_compared_where_words_are_cut_otherwise_each_time():
    agreement = LocalAgreement()
    agreement.update(words("我们 在北京"))
    assert texts(agreement.update(words("我们 在北京 喝茶"))) == "我们 在北京"
    assert texts(agreement.update(words("我 们在 北京 喝茶 吗"))) == "喝茶"


def test_a_word_said_again_later_is_kept():
    agreement = LocalAgreement()
    agreement.update(words("no"))
    agreement.update(words("no"))
    agreement.update(words("no", start_ms=2000))
    assert texts(agreement.update(words("no", start_ms=2000))) == "no"
