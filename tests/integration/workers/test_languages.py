"""The language of a job is one decision for the whole job, made from windows spread over it."""

from collections.abc import Callable

import numpy as np
import pytest

from core.db import unit_of_work
from lifecycle.jobs import voters_key
from lifecycle.windows import settle_language
from models import JobStatus
from tests.support.pipeline import Pipeline, noise


def heard_languages(pipeline: Pipeline) -> set[str | None]:
    return {window.language for batch in pipeline.adapter.batches for window in batch}


def loud_is(language: str) -> Callable:
    """Return a detection that hears `language` in loud windows and English elsewhere."""
    return lambda window: (
        {language: 1.0} if abs(window.samples).max() > 0.1 else {"en": 0.9, language: 0.1}
    )


def test_the_majority_decides_for_every_window(pipeline, submit, job_of) -> None:
    samples = noise(10.0)
    samples[:32_000] *= 0.1  # an English jingle before ten seconds of German
    pipeline.adapter.detect = loud_is("de")
    job_id = submit(samples, language="auto")

    pipeline.run()

    job = job_of(job_id)
    assert (job.status, job.language) == (JobStatus.COMPLETED, "de")
    assert heard_languages(pipeline) == {"de"}
    assert len(pipeline.adapter.detected) == 5


def test_windows_wait_until_all_of_them_can_vote(pipeline, submit, windows_of) -> None:
    job_id = submit(noise(10.0), language="auto")
    sent = []
    pipeline.messages.wake = lambda *_args, **_kwargs: sent.append(
        [w.is_claimable for w in windows_of(job_id)]
    )
    pipeline.step()
    assert len(sent) == 1
    assert all(sent[0])


def test_the_first_answer_wins(pipeline, submit) -> None:
    job_id = submit(language="auto")
    answers = []
    for language in ("fr", "de"):
        with unit_of_work(pipeline.context.sessions) as uow:
            answers.append(
                settle_language(uow, pipeline.events, job_id, language, now=pipeline.clock())
            )
    assert answers == ["fr", "fr"]


def test_a_named_language_is_forced_and_nobody_votes(pipeline, submit, job_of) -> None:
    job_id = submit(language="fr")
    pipeline.run()
    assert heard_languages(pipeline) == {"fr"}
    assert pipeline.adapter.detected == []
    assert job_of(job_id).language == "fr"


def test_multi_leaves_each_window_to_itself(pipeline, submit, job_of) -> None:
    job_id = submit(language="multi")
    pipeline.run()
    assert heard_languages(pipeline) == {None}
    assert pipeline.adapter.detected == []
    assert job_of(job_id).language is None


def test_a_checkpoint_of_one_language_needs_no_vote(pipeline, submit, job_of) -> None:
    pipeline.adapter.languages = frozenset({"en"})
    job_id = submit(language="auto")
    pipeline.run()
    assert job_of(job_id).language == "en"
    assert pipeline.adapter.detected == []


def test_detection_that_fails_leaves_windows_to_themselves(pipeline, submit, job_of) -> None:
    def fail(_window):
        raise RuntimeError("no idea")

    pipeline.adapter.detect = fail
    job_id = submit(language="auto")
    pipeline.run()
    assert job_of(job_id).status == JobStatus.COMPLETED
    assert heard_languages(pipeline) == {None}
    assert job_of(job_id).language == "en"


@pytest.fixture
def excerpts(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What `prepare` finds in its media beforehand: German, whatever the windows sound like."""
    found = [np.full(16_000, 0.1 * number, np.float32) for number in (1.5, 2, 3)]
    monkeypatch.setattr("workers.prepare.find_speech", lambda _path, _limits: found)
    return found


def test_excerpts_vote_and_no_window_waits_for_the_last(
    pipeline, submit, windows_of, job_of, excerpts
) -> None:
    pipeline.adapter.detect = loud_is("de")
    job_id = submit(noise(10.0) * 0.05, language="auto")  # windows would say English
    waiting = []
    pipeline.messages.wake = lambda *_args, **_kwargs: waiting.append(
        [w.is_claimable for w in windows_of(job_id)]
    )
    pipeline.step()
    assert len(waiting) > 1
    assert all(all(each) for each in waiting)

    del pipeline.messages.wake
    pipeline.messages.wake("checksum")
    pipeline.run()
    assert (job_of(job_id).status, job_of(job_id).language) == (JobStatus.COMPLETED, "de")
    # The first and the third agree: the second could not change it.
    assert [len(window.samples) for window in pipeline.adapter.detected] == [16_000] * 2


def test_windows_vote_where_the_excerpts_are_lost(pipeline, submit, job_of, excerpts) -> None:
    pipeline.adapter.detect = loud_is("de")
    job_id = submit(noise(10.0) * 0.05, language="auto")
    pipeline.step()
    pipeline.context.storage.delete(voters_key(job_id))
    pipeline.run()
    assert job_of(job_id).language == "en"
    assert excerpts
