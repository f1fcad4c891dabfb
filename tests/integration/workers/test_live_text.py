"""Text of streaming jobs: told once, in order, and never taken back."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
import soundfile
from sqlalchemy import select

from adapters.base import Window
from adapters.streaming.base import DeltaSink
from core.db import read_session, unit_of_work
from core.errors import AdapterFailure, TokenLimitReached, UnknownLanguage
from core.events import EventType
from core.transcript import Hypothesis, Segment, samples_to_ms
from lifecycle.jobs import lock_job
from lifecycle.streaming import stream_segments
from lifecycle.transcripts import load_transcript
from lifecycle.windows import lease_of, tell_text
from models import Event, Job, JobStatus
from tests.support.pipeline import ADAPTER, MODEL, ChecksumAdapter, Pipeline, noise, text_of

SPEECH = Path(__file__).parents[3] / "samples" / "en_kennedy.flac"
TEXTS = ("今日は", "いい天気です。", "Yes, it is.", "ไทย", "ภาษา", "안녕", "친구")


@dataclass
class Quiet(ChecksumAdapter):
    """Says nothing before a window is done."""

    say: Callable[[Window], str] = lambda window: text_of(window.samples)

    def transcribe(self, windows: Sequence[Window]) -> list[Hypothesis]:
        super().transcribe(windows)
        return [
            Hypothesis(
                segments=(Segment(text=self.say(w), start_ms=0, end_ms=w.duration_ms),),
                language="en",
            )
            for w in windows
        ]


@dataclass
class Talker(Quiet):
    """Says its windows' texts in two halves, the last window's first."""

    between: Callable[[Sequence[Window]], None] = lambda _windows: None
    num_streams: int = 0

    def transcribe_stream(self, windows: Sequence[Window], sink: DeltaSink) -> list[Hypothesis]:
        self.num_streams += 1
        for index in reversed(range(len(windows))):
            text = self.say(windows[index])
            sink(index, text[: len(text) // 2])
        self.between(windows)
        for index, window in enumerate(windows):
            text = self.say(window)
            sink(index, text[len(text) // 2 :])
        return self.transcribe(windows)


@dataclass
class Script:
    """Gives windows the texts of a script, in the order of their audio."""

    texts: Sequence[str]
    known: dict[str, str] = field(default_factory=dict)

    def __call__(self, window: Window) -> str:
        return self.known.setdefault(window.key, self.texts[len(self.known)])


@pytest.fixture
def use(pipeline, monkeypatch) -> Callable[..., Talker]:
    """Return a function that serves another adapter; its text is told every hundredth second."""
    monkeypatch.setattr("workers.runner.INTERVAL_S", 0.01)

    def install(kind: type[Quiet] = Talker, **options) -> Quiet:
        adapter = kind(pipeline.adapter.spec, **options)
        pipeline.context.catalog.adapters[MODEL] = pipeline.adapter = adapter
        return adapter

    return install


@dataclass(frozen=True)
class Reader:
    """What the outside sees of a job."""

    pipeline: Pipeline

    def events(self, job_id: UUID) -> list[Event]:
        with read_session(self.pipeline.context.sessions) as session:
            rows = select(Event).where(Event.job_id == job_id).order_by(Event.seq)
            return list(session.scalars(rows))

    def deltas(self, job_id: UUID) -> list[str]:
        return [e.data["delta"] for e in self.events(job_id) if e.type == EventType.TEXT_DELTA]

    def text(self, job_id: UUID) -> str:
        with read_session(self.pipeline.context.sessions) as session:
            return load_transcript(session, session.get_one(Job, job_id)).text

    def job(self, job_id: UUID) -> Job:
        with read_session(self.pipeline.context.sessions) as session:
            return session.get_one(Job, job_id)


@pytest.fixture
def read(pipeline) -> Reader:
    return Reader(pipeline)


def wait_until(is_true: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1000):
        if is_true():
            return
        pause.wait(0.02)
    pytest.fail("it did not come true in time")


def test_text_is_published_while_the_model_still_decodes(pipeline, submit, read, use) -> None:
    adapter = use()
    heads: list[str] = []

    def wait_for_half(windows: Sequence[Window]) -> None:
        heads.append(adapter.say(windows[0])[:4])
        if len(heads) == 1:
            wait_until(lambda: read.deltas(job_id) == heads)

    adapter.between = wait_for_half
    job_id = submit(noise(3.0), stream=True)
    pipeline.run()

    assert read.deltas(job_id)[0] == heads[0]
    assert "".join(read.deltas(job_id)) == read.text(job_id)


@pytest.mark.parametrize("kind", [Quiet, Talker])
def test_deltas_join_to_the_text_in_every_script(pipeline, submit, read, use, kind) -> None:
    use(kind, say=Script(TEXTS * 4))
    job_id = submit(noise(9.0), stream=True)
    pipeline.run()

    done = [e.data["text"] for e in read.events(job_id) if e.type == EventType.TEXT_DONE]
    assert done == ["".join(read.deltas(job_id))] == [read.text(job_id)]
    assert read.job(job_id).windows_total > len(TEXTS)
    assert all(read.deltas(job_id))


def test_a_segment_is_told_after_its_text(pipeline, submit, read, use) -> None:
    use()
    job_id = submit(noise(5.0), stream=True)
    pipeline.run()
    heard = ""
    for event in read.events(job_id):
        heard += event.data["delta"] if event.type == EventType.TEXT_DELTA else ""
        assert event.type != EventType.SEGMENT or event.data["text"] in heard


def test_a_second_try_goes_on_after_what_was_told(pipeline, submit, read, use) -> None:
    adapter = use()

    def break_once(_windows: Sequence[Window]) -> None:
        wait_until(lambda: len(read.deltas(job_id)) == 1)
        if adapter.num_streams <= 2:
            raise AdapterFailure("in the middle")

    adapter.between = break_once
    job_id = submit(noise(0.9), stream=True)
    for _ in range(3):
        pipeline.messages.wake(ADAPTER)  # as the sweeper does
        pipeline.run()

    assert adapter.num_streams == 3
    assert "".join(read.deltas(job_id)) == read.text(job_id)
    assert read.job(job_id).warnings == []


def test_a_second_try_that_reads_otherwise_says_so_and_repeats_nothing(
    pipeline, submit, read, use
) -> None:
    adapter = use(say=lambda window: "whole" if "/" not in window.key else f"part{window.key[-1]}")

    def break_long(windows: Sequence[Window]) -> None:
        wait_until(lambda: len(read.deltas(job_id)) == 1)
        raise TokenLimitReached("no end")

    adapter.between = break_long
    job_id = submit(noise(0.9), stream=True)
    pipeline.run()

    assert read.text(job_id) == "part0 part1"
    assert read.deltas(job_id) == ["wh"]
    assert read.job(job_id).warnings == ["stream_diverged"]


def test_a_pause_before_the_window_that_is_told_is_no_end_of_it(
    pipeline, submit, read, windows_of, use
) -> None:
    """The rest of the recording gets its windows, or one of them its text, at such a moment."""
    context, adapter, seen = pipeline.context, use(), []

    def look_again(_windows: Sequence[Window]) -> None:
        if seen:
            return
        wait_until(lambda: len(read.deltas(job_id)) == 1)
        with unit_of_work(context.sessions) as uow:
            job = lock_job(uow.session, job_id)
            seen.append(job.streamed_until_ms)
            stream_segments(uow, context.publisher, job, now=context.now())
            seen.append(job.streamed_until_ms)

    adapter.between = look_again
    speech, _ = soundfile.read(SPEECH, dtype="float32", frames=3 * 16_000)
    silence = np.zeros(2 * 16_000, dtype=np.float32)
    job_id = submit(np.concatenate([silence, speech]), stream=True, vad=True)
    pipeline.run()

    assert seen == [0, samples_to_ms(windows_of(job_id)[0].start_sample)] != [0, 0]
    assert "".join(read.deltas(job_id)) == read.text(job_id) != ""
    assert read.job(job_id).warnings == []


@pytest.mark.parametrize(
    "options", [{"stream": False}, {"stream": True, "on_window_failure": "gap"}]
)
def test_nothing_is_told_early_that_was_not_asked_for_or_may_get_lost(
    pipeline, submit, read, use, options
) -> None:
    adapter = use()
    job_id = submit(noise(3.0), **options)
    pipeline.run()
    assert adapter.num_streams == 0
    assert "".join(read.deltas(job_id)) == (read.text(job_id) if options["stream"] else "")


def test_channels_are_told_in_the_order_of_the_transcript(pipeline, submit, read, use) -> None:
    use()
    both = np.stack([noise(4.0, seed=1), noise(4.0, seed=2)], axis=1)
    job_id = submit(both, stream=True, channels="split")
    pipeline.run()
    assert "".join(read.deltas(job_id)) == read.text(job_id) != ""


def test_a_reused_transcript_is_told_as_well(pipeline, submit, read) -> None:
    submit(noise(3.0))
    pipeline.run()
    job_id = submit(noise(3.0), stream=True)
    pipeline.run()
    assert read.job(job_id).reused_from is not None
    assert "".join(read.deltas(job_id)) == read.text(job_id) != ""


def test_only_the_present_attempt_tells_and_only_in_its_turn(
    pipeline, submit, read, windows_of, use
) -> None:
    context, answers = pipeline.context, []
    adapter = use(Quiet)

    def tell(window, text: str, *, attempt: int = 0) -> bool:
        lease = lease_of(window)
        lease = type(lease)(lease.window_id, lease.attempt + attempt)
        with unit_of_work(context.sessions) as uow:
            return tell_text(uow, context.publisher, job_id, lease, text, now=context.now())

    def probe(windows: Sequence[Window]) -> None:
        if answers:
            return
        first, second = windows_of(job_id)[:2]
        text = adapter.say(windows[0])
        answers.extend(
            [
                tell(first, text, attempt=-1),
                tell(second, "later"),
                tell(first, text[:3]),
                tell(first, text[:3]),
                tell(first, text[:5]),
                tell(first, text[:4]),
                tell(first, "other than before"),
            ]
        )

    adapter.before = probe
    job_id = submit(noise(3.0), stream=True)
    pipeline.run()
    assert answers == [False, False, True, False, True, False, False]
    assert [len(delta) for delta in read.deltas(job_id)][:2] == [3, 2]
    assert "".join(read.deltas(job_id)) == read.text(job_id)


def test_an_option_that_the_model_refuses_fails_the_job_at_once(
    pipeline, submit, read, windows_of
) -> None:
    def refuse(_windows: Sequence[Window]) -> None:
        raise UnknownLanguage("'xx' is not among this model's languages", param="language")

    pipeline.adapter.before = refuse
    job_id = submit(noise(3.0), on_window_failure="gap")
    pipeline.run()

    job = read.job(job_id)
    assert (job.status, job.error_code) == (JobStatus.FAILED, "unknown_language")
    assert job.error_message == "'xx' is not among this model's languages"
    assert {window.attempt for window in windows_of(job_id)} == {1}
