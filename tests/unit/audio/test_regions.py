from core.audio.regions import Region, SpeechRules, SpeechTracker

RULES = SpeechRules(on=0.5, off=0.3, min_silence=3, min_speech=4, sure=0.9)


def believed(probabilities: list[float]) -> list[Region]:
    tracker = SpeechTracker(RULES)
    regions: list[Region] = []
    for probability in probabilities:
        region = tracker.push(probability)
        if region is not None and (not regions or regions[-1] is not region):
            regions.append(region)
    return regions


def test_speech_goes_on_through_a_short_dip() -> None:
    assert believed([0, 0.6, 0.6, 0.1, 0.1, 0.6, 0.6, 0, 0, 0, 0]) == [Region(1, 7)]


def test_speech_ends_with_enough_silence() -> None:
    assert believed([0.6] * 5 + [0] * 3 + [0.6] * 5) == [Region(0, 5), Region(8, 13)]


def test_the_lower_threshold_keeps_speech_but_does_not_begin_it() -> None:
    assert believed([0.4] * 9) == []
    assert believed([0.6, 0.4, 0.4, 0.4, 0.4]) == [Region(0, 5)]


def test_what_is_short_must_be_sure() -> None:
    assert believed([0, 0.8, 0.8, 0, 0, 0]) == []
    assert believed([0, 0.95, 0, 0, 0]) == [Region(1, 2)]
