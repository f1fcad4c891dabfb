"""What the sweeper sends and deletes, and what it leaves alone."""

import os
from datetime import timedelta

import pytest
from sqlalchemy import func, select

from core.db import read_session, unit_of_work
from core.ids import new_id
from models import Event, Job, JobStatus, Media, Segment, Window
from tests.support.pipeline import noise
from workers.sweep import MAX_PER_STEP, sweep, tidy


def count(pipeline, table) -> int:
    with read_session(pipeline.context.sessions) as session:
        return session.scalar(select(func.count()).select_from(table))


def test_a_queue_that_has_its_messages_gets_no_more(pipeline, submit) -> None:
    for _ in range(3):
        submit(noise(0.5))
    before = pipeline.messages.num_sent
    sweep(pipeline.context, pipeline.messages)
    kinds = [kind for kind, _ in pipeline.messages.waiting]
    assert kinds.count("prepare") == 3
    assert pipeline.messages.num_sent == before + kinds.count("deliver")


def test_sweeping_again_and_again_does_not_fill_the_queue(pipeline, submit) -> None:
    for _ in range(3):
        submit(noise(0.5))
    pipeline.messages.waiting.clear()
    for _ in range(10):
        sweep(pipeline.context, pipeline.messages)
    kinds = [kind for kind, _ in pipeline.messages.waiting]
    assert kinds.count("prepare") == 3
    assert len(kinds) <= MAX_PER_STEP


def test_an_expired_job_goes_with_everything_it_left(pipeline, submit, job_of) -> None:
    job_id = submit()
    pipeline.run()
    with unit_of_work(pipeline.context.sessions) as uow:
        uow.session.get_one(Job, job_id).delete_at = pipeline.clock() + timedelta(seconds=10)

    sweep(pipeline.context, pipeline.messages)
    assert count(pipeline, Job) == 1

    pipeline.clock.advance(11)
    sweep(pipeline.context, pipeline.messages)
    assert [count(pipeline, t) for t in (Job, Window, Segment, Event, Media)] == [0] * 5
    assert list(pipeline.context.storage.list("")) == []


def test_an_unfinished_job_does_not_expire(pipeline, submit) -> None:
    job_id = submit()
    with unit_of_work(pipeline.context.sessions) as uow:
        uow.session.get_one(Job, job_id).delete_at = pipeline.clock()
    pipeline.clock.advance(1)
    sweep(pipeline.context, pipeline.messages)
    assert count(pipeline, Job) == 1


def test_media_that_another_job_uses_stays(pipeline, submit, job_of) -> None:
    from lifecycle.jobs import lock_job, purge_job
    from lifecycle.submitting import add_job, announce_job

    first = submit()
    with unit_of_work(pipeline.context.sessions) as uow:
        job = lock_job(uow.session, first)
        media = uow.session.get_one(Media, job.media_id)
        from core.options import Priority, TranscribeOptions

        second = add_job(
            uow.session,
            key_id=job.key_id,
            media=media,
            model=job.model,
            options=TranscribeOptions(vad=False, language="en"),
            priority=Priority.BULK,
            now=pipeline.clock(),
        )
        uow.session.flush()
        announce_job(uow, pipeline.messages, pipeline.events, second, now=pipeline.clock())
    with unit_of_work(pipeline.context.sessions) as uow:
        purge_job(uow, pipeline.context.storage, lock_job(uow.session, first))
    pipeline.run()
    assert job_of(second.id).status == JobStatus.COMPLETED


def test_a_purge_that_rolls_back_deletes_no_object(pipeline, submit) -> None:
    from lifecycle.jobs import lock_job, purge_job

    job_id = submit()
    with pytest.raises(RuntimeError), unit_of_work(pipeline.context.sessions) as uow:
        purge_job(uow, pipeline.context.storage, lock_job(uow.session, job_id))
        raise RuntimeError
    assert len(list(pipeline.context.storage.list("media/"))) == 1
    assert count(pipeline, Job) == 1


def test_tidying_deletes_what_no_row_needs_and_nothing_else(
    pipeline, submit, tmp_path, windows_of
) -> None:
    storage = pipeline.context.storage
    running = submit()
    pipeline.step()
    needed = windows_of(running)[0].object_key
    gone = f"windows/{new_id()}/1-0.flac"
    old, fresh = "media/old", "media/fresh"
    for key in (gone, old, fresh):
        storage.put(key, b"x")
    two_hours_ago = (pipeline.clock() - timedelta(hours=2)).timestamp()
    os.utime(tmp_path / "objects" / old, (two_hours_ago, two_hours_ago))
    kept = {info.key for info in storage.list("media/")} - {old}
    pipeline.clock.at = pipeline.clock.at.now(tz=pipeline.clock.at.tzinfo)
    os.utime(tmp_path / "objects" / fresh)

    tidy(pipeline.context)

    assert {info.key for info in storage.list("media/")} == kept
    left = {info.key for info in storage.list("windows/")}
    assert needed in left
    assert gone not in left


def test_tidying_removes_what_a_dead_writer_left(pipeline, tmp_path) -> None:
    left = tmp_path / "objects" / ".incoming" / "half"
    left.write_bytes(b"x")
    os.utime(left, (0, 0))

    tidy(pipeline.context)

    assert not left.exists()
