import json
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from core.db import unit_of_work
from lifecycle import expansion
from lifecycle.batches import errors_key, manifest_key, results_key
from lifecycle.expansion import claim_batch
from models import ApiKey, Batch, BatchItem, Delivery, Job
from tests.integration.api.conftest import make_key
from tests.integration.batches.conftest import counts, line
from workers import expand as expand_module


def test_bad_lines_are_reported_one_by_one_and_sink_nothing(stack, mixed):
    batch_id = stack.submit(mixed)
    assert stack.get(batch_id)["counts"] == {
        "total": 17, "queued": 17, "running": 0, "completed": 0, "failed": 0, "cancelled": 0,
    }  # fmt: skip
    stack.step()
    view = stack.get(batch_id)
    assert (view["status"], counts(view)) == ("running", {"queued": 4, "failed": 13})
    stack.run()

    view = stack.get(batch_id)
    assert view["status"] == "completed"
    assert view["counts"]["total"] == 17
    assert counts(view) == {"completed": 3, "failed": 14}
    results = stack.results(batch_id)
    assert len(results) == 17
    # A line without a usable name, or with one that is taken, is told by its place alone.
    assert [r["index"] for r in results] == list(range(17))
    good = [r for r in results if r["status"] == "completed"]
    assert [r["custom_id"] for r in good] == ["a", "b", "c"]
    for result in good:
        assert result["text"]
        assert result["segments"][0]["start"] == 0
        assert UUID(result["job_id"])
    bad = {r["custom_id"]: r["error"]["code"] for r in results if r["status"] == "failed"}
    assert bad["missing"] == "media_not_found"
    assert bad["bad-option"] == bad["unknown-option"] == bad["outside"] == "invalid_option"
    assert bad["undecodable"] == "media_undecodable"
    assert bad["a"] == "invalid_option"
    assert stack.results(batch_id, "errors") == [r for r in results if r["status"] == "failed"]


def test_results_are_also_written_to_storage_and_the_manifest_goes(stack, mixed):
    batch_id = UUID(stack.submit(mixed))
    storage = stack.context.storage
    assert storage.read(manifest_key(batch_id))
    stack.run()
    stack.sweep()
    stack.run()
    stored = [json.loads(x) for x in storage.read(results_key(batch_id)).splitlines()]
    assert stored == stack.results(str(batch_id))
    errors = [json.loads(x) for x in storage.read(errors_key(batch_id)).splitlines()]
    assert len(errors) == 14
    assert manifest_key(batch_id) not in {info.key for info in storage.list("batches/")}


def test_cancel_ends_what_has_not_ended_and_accounts_for_every_line(stack, monkeypatch):
    monkeypatch.setattr(expansion, "MAX_AHEAD", 2)
    keys = stack.store_audio("1.wav", "2.wav", "3.wav", "4.wav")
    batch_id = stack.submit([line(str(i), key) for i, key in enumerate(keys)])
    stack.step()  # two of four lines become jobs
    answer = stack.client.post(f"/v1/batches/{batch_id}/cancel")
    assert answer.status_code == 202
    stack.run()
    view = stack.get(batch_id)
    assert view["status"] == "cancelled"
    assert counts(view) == {"cancelled": 4}
    assert [r["status"] for r in stack.results(batch_id)] == ["cancelled"] * 4
    assert stack.client.post(f"/v1/batches/{batch_id}/cancel").status_code == 409
    assert stack.pipeline.adapter.batches == []


def test_no_more_jobs_wait_than_the_limit_and_the_rest_follows(stack, monkeypatch):
    monkeypatch.setattr(expansion, "MAX_AHEAD", 3)
    keys = stack.store_audio(*(f"{i}.wav" for i in range(8)), seconds=1.1)
    batch_id = stack.submit([line(key, key) for key in keys])
    most = 0
    for _ in range(12):
        while stack.step():
            with stack.context.sessions() as session:
                active = session.scalar(
                    select(func.count()).where(Job.status.in_(("queued", "running")))
                )
            most = max(most, active)
        stack.sweep()
    assert most == 3
    assert counts(stack.get(batch_id)) == {"completed": 8}


def test_a_keys_limit_holds_a_batch_back_without_failing_it(stack):
    with unit_of_work(stack.context.sessions) as uow:
        uow.session.execute(update(ApiKey).values(limits={"active_jobs": 1}))
    keys = stack.store_audio("1.wav", "2.wav", "3.wav")
    batch_id = stack.submit([line(key, key) for key in keys])
    for _ in range(6):
        stack.run()
        stack.sweep()
    assert counts(stack.get(batch_id)) == {"completed": 3}


def test_expansion_that_died_goes_on_where_its_last_transaction_ended(stack, monkeypatch):
    monkeypatch.setattr(expand_module, "LINES_PER_TRANSACTION", 2)
    keys = stack.store_audio(*(f"{i}.wav" for i in range(5)))
    batch_id = stack.submit([line(key, key) for key in keys])
    original = expand_module.add_items
    calls = []

    def dying(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            original(*args, **kwargs)  # inside a transaction that is about to be rolled back
            raise RuntimeError("killed")
        return original(*args, **kwargs)

    monkeypatch.setattr(expand_module, "add_items", dying)
    with pytest.raises(RuntimeError, match="killed"):
        stack.step()
    monkeypatch.setattr(expand_module, "add_items", original)
    stack.sweep()
    stack.run()
    assert counts(stack.get(batch_id)) == {"queued": 3, "completed": 2}  # the lease still holds
    stack.pipeline.clock.advance(expansion.LEASE.total_seconds() + 1)
    stack.sweep()
    stack.run()
    results = stack.results(batch_id)
    assert [r["custom_id"] for r in results] == keys
    assert {r["status"] for r in results} == {"completed"}
    with stack.context.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 5


def test_a_claim_that_was_lost_writes_nothing_more(stack):
    batch_id = UUID(stack.submit([line("a", *stack.store_audio("1.wav"))]))
    context = stack.pipeline.context
    with unit_of_work(context.sessions) as uow:
        first = claim_batch(uow, batch_id, now=context.now())
    stack.pipeline.clock.advance(expansion.LEASE.total_seconds() + 1)
    with unit_of_work(context.sessions) as uow:
        assert claim_batch(uow, batch_id, now=context.now()) is not None
    from core.errors import LeaseLost

    with pytest.raises(LeaseLost), unit_of_work(context.sessions) as uow:
        expansion.add_items(uow, None, first, [], now=context.now())


def test_a_prefix_makes_an_item_of_each_object_that_fits(stack):
    stack.store_audio("x/1.wav", "x/deep/2.wav", "x/notes.txt", "y/3.wav")
    body = {"prefix": "inbox/x/", "glob": "*.wav", "options": {"language": "en", "vad": False}}
    answer = stack.client.post("/v1/batches", json=body)
    assert answer.status_code == 202, answer.text
    stack.run()
    results = stack.results(answer.json()["id"])
    assert [r["custom_id"] for r in results] == ["inbox/x/1.wav", "inbox/x/deep/2.wav"]
    assert {r["status"] for r in results} == {"completed"}
    assert stack.get(answer.json()["id"])["counts"]["total"] == 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prefix": "media/"}, "prefix"),
        ({"prefix": ""}, "prefix"),
        ({"prefix": "inbox/", "options": {"language": "xx"}}, "language"),
        ({"prefix": "inbox/", "options": {"media_key": "a"}}, "media_key"),
        ({"prefix": "inbox/", "webhook_url": "http://127.0.0.1/"}, "webhook_url"),
        ({"prefix": "inbox/", "colour": 1}, "colour"),
        ({"glob": "*"}, "prefix"),
    ],
)
def test_a_prefix_batch_that_cannot_be_is_refused_by_name(stack, body, param):
    answer = stack.client.post("/v1/batches", json=body)
    assert (answer.status_code, answer.json()["param"]) == (400, param)


def test_bad_options_for_all_lines_are_refused_and_leave_nothing(stack):
    answer = stack.post([line("a", "inbox/1.wav")], options={"language": "xx"})
    assert (answer.status_code, answer.json()["param"]) == (400, "language")
    assert list(stack.context.storage.list("batches/")) == []


def test_lines_override_the_batchs_options_and_jobs_are_bulk(stack):
    keys = stack.store_audio("1.wav", "2.wav")
    batch_id = stack.submit(
        [line("a", keys[0], language="de"), line("b", keys[1], priority="standard")]
    )
    stack.step()
    jobs = stack.client.get("/v1/jobs", params={"batch_id": batch_id}).json()["data"]
    by_language = {job["options"]["language"]: job for job in jobs}
    assert set(by_language) == {"de", "en"}
    assert by_language["de"]["priority"] == "bulk"
    assert by_language["en"]["priority"] == "standard"
    assert {job["batch_id"] for job in jobs} == {batch_id}


def test_the_end_of_a_batch_reaches_its_webhook_once_a_round(stack):
    url = "https://example.com/hook"
    broken = stack.store("broken.wav", b"not audio")
    lines = [line("a", *stack.store_audio("1.wav")), line("b", broken)]
    batch_id = stack.submit(lines, webhook_url=url)
    stack.run()
    stack.sweep()
    stack.run()
    with stack.context.sessions() as session:
        (delivery,) = session.query(Delivery).all()
    payload = json.loads(delivery.body)
    assert (delivery.url, payload["type"]) == (url, "batch.completed")
    assert payload["data"]["id"] == batch_id
    assert payload["data"]["counts"]["completed"] == 1
    assert payload["data"]["status"] == "completed"
    stack.client.post(f"/v1/batches/{batch_id}/retry")
    stack.run()
    with stack.context.sessions() as session:
        assert len({d.event_id for d in session.query(Delivery)}) == 2


def test_the_same_manifest_under_one_idempotency_key_is_one_batch(stack):
    lines = [line("a", *stack.store_audio("1.wav"))]
    headers = {"Idempotency-Key": "k"}
    first = stack.post(lines, headers=headers)
    second = stack.post(lines, headers=headers)
    other = stack.post([*lines, b"{}"], headers=headers)
    assert first.json() == second.json()
    assert other.status_code == 409
    assert len(list(stack.context.storage.list("batches/"))) == 1
    with stack.context.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Batch)) == 1


def test_deleting_an_open_job_of_a_batch_does_not_keep_it_open(stack):
    batch_id = stack.submit([line(k, k) for k in stack.store_audio("1.wav", "2.wav")])
    stack.step()
    jobs = stack.client.get("/v1/jobs", params={"batch_id": batch_id}).json()["data"]
    assert stack.client.delete(f"/v1/jobs/{jobs[0]['id']}").status_code == 204
    stack.run()
    stack.sweep()
    stack.run()
    view = stack.get(batch_id)
    assert view["status"] == "completed"
    assert counts(view) == {"completed": 1, "cancelled": 1}


def test_deleting_a_job_deletes_its_text_from_the_batchs_results(stack):
    batch_id = stack.submit([line("a", *stack.store_audio("1.wav"))])
    stack.run()
    stack.sweep()
    stack.run()
    (before,) = stack.results(batch_id)
    stack.client.delete(f"/v1/jobs/{before['job_id']}")
    (after,) = stack.results(batch_id)
    assert after == {"index": 0, "custom_id": "a", "job_id": None, "status": "completed"}
    assert results_key(UUID(batch_id)) not in {
        info.key for info in stack.context.storage.list("batches/")
    }


def test_an_ended_batch_is_deleted_and_an_open_one_is_not(stack):
    batch_id = stack.submit([line("a", *stack.store_audio("1.wav"))])
    assert stack.client.delete(f"/v1/batches/{batch_id}").status_code == 409
    stack.run()
    stack.sweep()
    stack.run()
    assert stack.client.delete(f"/v1/batches/{batch_id}").status_code == 204
    assert stack.client.get(f"/v1/batches/{batch_id}").status_code == 404
    assert list(stack.context.storage.list("batches/")) == []
    with stack.context.sessions() as session:
        assert session.scalar(select(func.count()).select_from(BatchItem)) == 0


def test_an_empty_manifest_is_a_completed_batch(stack):
    batch_id = stack.submit([b"", b"  "])
    stack.run()
    view = stack.get(batch_id)
    assert (view["status"], view["counts"]["total"]) == ("completed", 0)
    assert stack.results(batch_id) == []


def test_items_come_in_pages_in_the_manifests_order(stack, mixed):
    batch_id = stack.submit(mixed)
    stack.run()
    seen, cursor = [], None
    while True:
        params = {"limit": 5} | ({"cursor": cursor} if cursor else {})
        page = stack.client.get(f"/v1/batches/{batch_id}/jobs", params=params).json()
        seen += [item["index"] for item in page["data"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == list(range(17))
    failed = stack.client.get(f"/v1/batches/{batch_id}/jobs", params={"status": "failed"})
    assert len(failed.json()["data"]) == 14


def test_progress_and_eta_follow_the_audio(stack):
    batch_id = stack.submit([line(k, k) for k in stack.store_audio("1.wav", "2.wav", seconds=2)])
    assert stack.get(batch_id)["eta_s"] is None
    stack.run()
    view = stack.get(batch_id)
    assert (view["audio_s_done"], view["audio_s_total"], view["eta_s"]) == (4, 4, None)


def test_another_key_sees_and_changes_nothing(stack):
    batch_id = stack.submit([line("a", *stack.store_audio("1.wav"))])
    headers = {"Authorization": f"Bearer {make_key(stack.context, name='other')}"}
    client = stack.client
    answers = [
        client.get(f"/v1/batches/{batch_id}", headers=headers),
        client.get(f"/v1/batches/{batch_id}/jobs", headers=headers),
        client.get(f"/v1/batches/{batch_id}/results", headers=headers),
        client.get(f"/v1/batches/{batch_id}/errors", headers=headers),
        client.post(f"/v1/batches/{batch_id}/retry", headers=headers),
        client.post(f"/v1/batches/{batch_id}/cancel", headers=headers),
        client.delete(f"/v1/batches/{batch_id}", headers=headers),
        client.get("/v1/batches/nonsense"),
    ]
    assert {a.status_code for a in answers} == {404}
    assert client.get("/v1/batches", headers=headers).json()["data"] == []
    assert len(client.get("/v1/batches").json()["data"]) == 1


def test_a_dry_run_reads_headers_and_creates_nothing(stack, mixed):
    answer = stack.post(mixed, dry_run="true")
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert (report["total"], report["usable"], report["unusable"]) == (17, 3, 14)
    assert report["probed"] == 3
    assert report["codecs"] == {"pcm_s16le": 3}
    assert report["audio_s"] == pytest.approx(4.5, abs=0.1)
    assert {p["custom_id"] for p in report["problems"]} >= {"missing", "undecodable", "a"}
    assert list(stack.context.storage.list("batches/")) == []
    with stack.context.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Batch)) == 0
        assert session.scalar(select(func.count()).select_from(Job)) == 0


def test_a_dry_run_of_a_prefix_estimates_from_recent_jobs(stack):
    keys = stack.store_audio("x/1.wav", "x/2.wav", "x/3.wav", seconds=2)
    batch_id = stack.submit([line(key, key) for key in keys])
    stack.run()
    assert stack.get(batch_id)["status"] == "completed"
    with unit_of_work(stack.context.sessions) as uow:
        # Two that overlap and one a week later: 6 s of audio took 3 s.
        one, two, three = uow.session.query(Job).order_by(Job.id)
        at = one.started_at
        for job, start_s, end_s in ((one, 0, 1.5), (two, 1, 2), (three, 604_800, 604_801)):
            job.started_at = at + timedelta(seconds=start_s)
            job.finished_at = at + timedelta(seconds=end_s)
    report = stack.client.post(
        "/v1/batches", json={"prefix": "inbox/x/"}, params={"dry_run": "true"}
    ).json()
    assert (report["total"], report["audio_s"]) == (3, pytest.approx(6, abs=0.1))
    assert report["estimated_s"] == pytest.approx(3, abs=0.2)
