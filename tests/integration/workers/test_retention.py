"""When a job's time is over nothing of it is left: no row, no object."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

from core.db import make_engine, read_session, unit_of_work
from core.ids import new_id
from lifecycle.idempotency import KEPT_FOR, Once, claim_once, keep_answer
from lifecycle.jobs import get_job, purge_job
from models import LOCAL_KEY_ID, Base, Delivery, DeliveryStatus, IdempotentAnswer
from tests.support.pipeline import noise, wav
from workers import finish, prepare
from workers.housekeeping import UNUSED_AFTER, tidy_objects
from workers.sweep import sweep, tidy

AUDIO = wav(noise(3.0))


def num_rows(pipeline) -> dict[str, int]:
    """Count every table but keys and Alembic's."""
    with read_session(pipeline.context.sessions) as session:
        return {
            table.name: session.scalar(select(func.count()).select_from(table))
            for table in Base.metadata.sorted_tables
            if table.name not in {"api_keys", "alembic_version"}
        }


def keys(pipeline) -> list[str]:
    return [info.key for info in pipeline.context.storage.list("")]


def expire_job(pipeline, job_id) -> None:
    with unit_of_work(pipeline.context.sessions) as uow:
        job = get_job(uow.session, None, job_id)
        job.delete_at = pipeline.context.now() + timedelta(hours=1)
    pipeline.clock.advance(3601)


def answer_once(pipeline, job_id) -> None:
    once = Once(key_id=LOCAL_KEY_ID, idempotency_key="k", fingerprint="f")
    with unit_of_work(pipeline.context.sessions) as uow:
        claim_once(uow, once, now=pipeline.context.now())
        keep_answer(uow, once, status=202, body=b"{}", location=None, subject_id=job_id)


def test_an_expired_job_leaves_no_row_and_no_object(pipeline, submit):
    job_id = submit(media=AUDIO, timestamps="word")
    answer_once(pipeline, job_id)
    pipeline.run()
    assert any(num_rows(pipeline).values())
    expire_job(pipeline, job_id)

    sweep(pipeline.context, pipeline.messages)

    assert set(num_rows(pipeline).values()) == {0}
    assert keys(pipeline) == []


@pytest.mark.parametrize(
    ("module", "transaction"), [(prepare, "finish_preparation"), (finish, "complete_job")]
)
def test_a_job_deleted_while_a_stage_writes_leaves_no_object(
    pipeline, submit, monkeypatch, module, transaction
):
    job_id = submit(media=AUDIO)
    original = getattr(module, transaction)

    def delete_first(*args, **kwargs):
        with unit_of_work(pipeline.context.sessions) as uow:
            purge_job(uow, pipeline.context.storage, get_job(uow.session, None, job_id))
        written.extend(keys(pipeline))
        return original(*args, **kwargs)

    def delete_later(key):
        # As if the stage wrote after the deletion had looked at what there was.
        if written or key.startswith("media/"):
            delete(key)

    written: list[str] = []
    storage, delete = pipeline.context.storage, pipeline.context.storage.delete
    monkeypatch.setattr(module, transaction, delete_first)
    monkeypatch.setattr(storage, "delete", delete_later)
    pipeline.run()

    assert written
    assert keys(pipeline) == []


def test_what_is_deleted_is_written_over_in_the_embedded_database(tmp_path):
    path = tmp_path / "a.db"

    def run(*statements: str) -> bytes:
        """Return what lies in the file once the statements do, and no journal beside it."""
        engine = make_engine(f"sqlite:///{path}")
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        engine.dispose()
        return path.read_bytes()

    before = run("CREATE TABLE a (text TEXT)", "INSERT INTO a VALUES ('whispered'), ('kept')")
    after = run("DELETE FROM a WHERE text = 'whispered'")
    assert b"whispered" in before
    assert b"kept" in after
    assert b"whispered" not in after


def test_before_its_time_nothing_goes(pipeline, submit):
    job_id = submit(media=AUDIO)
    pipeline.run()
    with unit_of_work(pipeline.context.sessions) as uow:
        get_job(uow.session, None, job_id).delete_at = pipeline.context.now() + timedelta(hours=1)
    before = keys(pipeline), num_rows(pipeline)
    sweep(pipeline.context, pipeline.messages)
    tidy(pipeline.context)
    assert (keys(pipeline), num_rows(pipeline)) == before


def test_a_delivery_that_is_still_to_come_outlives_the_job_until_it_ends(pipeline, submit):
    job_id = submit(media=AUDIO)
    with unit_of_work(pipeline.context.sessions) as uow:
        get_job(uow.session, None, job_id).webhook_url = "https://example.com/hook"
    pipeline.run()
    expire_job(pipeline, job_id)
    sweep(pipeline.context, pipeline.messages)
    assert {name for name, num in num_rows(pipeline).items() if num} == {"deliveries"}

    with unit_of_work(pipeline.context.sessions) as uow:
        delivery = uow.session.query(Delivery).one()
        delivery.claim(until=pipeline.context.now())
        delivery.move_to(DeliveryStatus.DELIVERED, now=pipeline.context.now())
    pipeline.clock.advance(31 * 24 * 3600)
    sweep(pipeline.context, pipeline.messages)
    assert set(num_rows(pipeline).values()) == {0}


def test_objects_that_no_row_names_are_found_and_removed(pipeline, submit):
    job_id = submit(media=AUDIO)
    pipeline.run()
    kept = keys(pipeline)
    orphans = [
        f"transcripts/{new_id()}.json",
        f"uploads/{new_id()}/media",
        f"uploads/{new_id()}/parts/00001",
        f"media/{new_id()}",
        f"windows/{new_id()}/00000.flac",
        "uploads/nonsense/media",
    ]
    for key in orphans:
        pipeline.context.storage.put(key, b"x")
    pipeline.clock.at = datetime.now(UTC)
    tidy(pipeline.context)
    young = [key for key in orphans if not key.startswith("windows/")]
    assert keys(pipeline) == sorted(kept + young)

    pipeline.clock.advance(UNUSED_AFTER.total_seconds() + 60)
    tidy(pipeline.context)

    assert keys(pipeline) == kept
    with read_session(pipeline.context.sessions) as session:
        assert get_job(session, None, job_id).transcript_key in kept
    assert tidy_objects(pipeline.context) == 0


def test_old_answers_go(pipeline, submit):
    answer_once(pipeline, submit(media=AUDIO))
    pipeline.clock.advance(KEPT_FOR.total_seconds() + 1)
    sweep(pipeline.context, pipeline.messages)
    with read_session(pipeline.context.sessions) as session:
        assert session.scalar(select(func.count()).select_from(IdempotentAnswer)) == 0
