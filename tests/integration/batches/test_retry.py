"""A batch's retry: what failed goes again, nothing else does."""

from uuid import UUID

from sqlalchemy import select, text

from lifecycle import expansion
from models import BatchItem, Job
from tests.integration.batches.conftest import counts, line
from workers import expand as expand_module

SECRET = "whsec_" + "A" * 32


def test_retry_touches_only_what_failed(stack, mixed):
    batch_id = stack.submit(mixed)
    stack.run()
    before = {r["custom_id"]: r for r in stack.results(batch_id)}
    with stack.context.sessions() as session:
        attempts = dict(session.execute(select(Job.id, Job.attempt)).all())
    stack.store_audio("broken.wav")
    stack.pipeline.adapter.batches.clear()

    answer = stack.client.post(f"/v1/batches/{batch_id}/retry")
    assert answer.status_code == 202
    assert answer.json()["status"] == "running"
    # The job that failed, and two lines whose media was not there.
    assert counts(answer.json()) == {"queued": 3, "completed": 3, "failed": 11}
    stack.run()

    view = stack.get(batch_id)
    assert (view["status"], counts(view)) == ("completed", {"completed": 4, "failed": 13})
    after = {r["custom_id"]: r for r in stack.results(batch_id)}
    assert after["undecodable"]["status"] == "completed"
    for name in ("b", "c", "missing"):
        assert after[name] == before[name]
    with stack.context.sessions() as session:
        changed = {i for i, n in session.execute(select(Job.id, Job.attempt)) if attempts[i] != n}
    assert changed == {UUID(after["undecodable"]["job_id"])}


def test_retry_reads_lines_again_whose_media_was_not_there(stack, monkeypatch):
    monkeypatch.setattr(expand_module, "LINES_PER_TRANSACTION", 2)
    good, *_ = stack.store_audio("good.wav")
    options = {"priority": "standard", "webhook_secret": SECRET}
    lines = [line(f"late-{n}", f"inbox/late-{n}.wav", **options) for n in range(5)]
    batch_id = stack.submit([line("good", good), *lines, line("wrong", good, temperature=7)])
    stack.run()
    assert counts(stack.get(batch_id)) == {"completed": 1, "failed": 6}

    stack.store_audio("late-0.wav", "late-1.wav", "late-2.wav", "late-3.wav")
    stack.client.post(f"/v1/batches/{batch_id}/retry")
    stack.run()
    stack.sweep()
    stack.run()

    view = stack.get(batch_id)
    assert (view["status"], counts(view)) == ("completed", {"completed": 5, "failed": 2})
    results = {r["custom_id"]: r for r in stack.results(batch_id)}
    assert all(results[f"late-{n}"]["text"] for n in range(4))
    assert "error" not in results["late-0"]
    assert results["late-4"]["error"]["code"] == "media_not_found"
    assert results["wrong"]["error"]["code"] == "invalid_option"
    jobs = stack.client.get("/v1/jobs", params={"batch_id": batch_id}).json()["data"]
    by_id = {job["id"]: job for job in jobs}
    assert by_id[results["late-0"]["job_id"]]["priority"] == "standard"
    with stack.context.sessions() as session:
        kept = session.scalars(select(BatchItem.custom_id).where(BatchItem.line.is_not(None)))
        assert list(kept) == ["late-4"]
        in_row = session.scalar(text("SELECT line FROM batch_items WHERE line IS NOT NULL"))
        assert SECRET not in str(in_row)


def test_a_retry_waits_for_room_like_the_first_try(stack, monkeypatch):
    monkeypatch.setattr(expansion, "MAX_AHEAD", 2)
    batch_id = stack.submit([line(str(n), f"inbox/{n}.wav") for n in range(5)])
    stack.run()
    stack.store_audio(*(f"{n}.wav" for n in range(5)))
    stack.client.post(f"/v1/batches/{batch_id}/retry")
    for _ in range(5):
        stack.run()
        stack.sweep()
    assert counts(stack.get(batch_id)) == {"completed": 5}


def test_cancelling_a_retry_accounts_for_lines_that_are_no_jobs_yet(stack):
    batch_id = stack.submit([line(str(n), f"inbox/{n}.wav") for n in range(3)])
    stack.run()
    stack.client.post(f"/v1/batches/{batch_id}/retry")
    assert stack.client.post(f"/v1/batches/{batch_id}/cancel").status_code == 202
    stack.run()
    view = stack.get(batch_id)
    assert (view["status"], counts(view)) == ("cancelled", {"cancelled": 3})


def test_retry_of_a_batch_without_failures_changes_nothing(stack):
    batch_id = stack.submit([line("a", *stack.store_audio("1.wav"))])
    stack.run()
    assert stack.client.post(f"/v1/batches/{batch_id}/retry").json()["status"] == "completed"


def test_retry_of_a_running_batch_is_a_conflict(stack):
    broken = stack.store("broken.wav", b"not audio")
    batch_id = stack.submit([line("x", broken), line("a", *stack.store_audio("1.wav"))])
    stack.step()
    stack.step()
    assert stack.client.post(f"/v1/batches/{batch_id}/retry").status_code == 409
