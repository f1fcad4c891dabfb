import pytest

from cli.progress import Tally, format_audio, format_clock


@pytest.fixture
def tally():
    tally = Tally(num_files=4, started_s=100.0)
    for key in "abcd":
        tally.expect(key, 1000)
    return tally


def test_nothing_is_promised_before_anything_is_known(tally):
    assert tally.expected_s() is None
    assert tally.eta_s(110.0) is None
    assert tally.line(110.0) == "0/4 files  0.0 s audio  0.0x  ETA -"


def test_unknown_durations_are_estimated_from_bytes(tally):
    tally.learn("a", 60.0)
    assert tally.expected_s() == 240.0


def test_speed_and_eta_follow_the_audio_heard(tally):
    tally.learn("a", 60.0)
    tally.complete("a", 60.0)
    tally.learn("b", 60.0)
    tally.advance("b", 30.0)
    assert tally.heard_s == 90.0
    assert tally.speed(130.0) == 3.0
    assert tally.eta_s(130.0) == 50.0
    assert tally.line(130.0) == "1/4 files  1.5 min of 4.0 min audio  3.0x  ETA 0:00:50"


def test_a_file_that_fails_is_no_longer_waited_for(tally):
    tally.learn("a", 60.0)
    for key in "bcd":
        tally.fail(key)
    assert tally.expected_s() == 60.0
    tally.advance("a", 10.0)
    tally.fail("a")
    assert (tally.heard_s, tally.expected_s()) == (0.0, 0.0)


def test_a_running_file_is_not_counted_twice_when_it_completes(tally):
    tally.learn("a", 60.0)
    tally.advance("a", 60.0)
    tally.complete("a", 60.0)
    assert tally.heard_s == 60.0


def test_an_estimate_never_says_less_than_nothing(tally):
    tally.learn("a", 1.0)
    tally.complete("a", 1.0)
    for key in "bcd":
        tally.fail(key)
    assert tally.eta_s(200.0) == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(7.1, "7.1 s"), (61, "1.0 min"), (5025, "1.40 h"), (360000, "100.00 h")]
)
def test_amounts_of_audio_are_told_in_fitting_units(seconds, text):
    assert format_audio(seconds) == text


def test_clocks_carry_over():
    assert format_clock(3599.6) == "1:00:00"
