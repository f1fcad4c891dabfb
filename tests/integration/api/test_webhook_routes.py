import json

import pytest
from sqlalchemy import text

from core.signing import check_secret
from models import Delivery, WebhookEndpoint
from tests.integration.api.conftest import SPEECH, client_of, make_key
from tests.integration.api.fakes import finish_now

URL = "https://example.com/hook"


def create(client, **body):
    return client.post("/v1/webhooks", json={"url": URL} | body)


def submit(client, **fields):
    files = {"file": ("会議.wav", SPEECH.read_bytes(), "audio/wav")}
    answer = client.post("/v1/jobs", files=files, data=fields)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def test_a_secret_is_shown_at_creation_and_never_again(client):
    created = create(client, events=["job.completed"])
    assert created.status_code == 201
    secret = created.json()["secret"]
    check_secret(secret, param="secret")
    path = created.headers["location"]
    for shown in (client.get(path), client.get("/v1/webhooks"), client.patch(path, json={})):
        assert shown.status_code == 200
        assert secret not in shown.text


def test_a_callers_own_secret_is_taken_or_refused(client):
    from core.signing import new_secret

    secret = new_secret()
    assert create(client, secret=secret).json()["secret"] == secret
    refused = create(client, secret="whsec_short")  # noqa: S106 - too short to be one
    assert refused.status_code == 400
    assert refused.json()["param"] == "secret"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/", "http://10.0.0.1/", "file:///etc/passwd", "nonsense"]
)
def test_an_endpoint_inside_is_refused(client, url):
    answer = create(client, url=url)
    assert answer.status_code == 400
    assert answer.json()["param"] == "url"


def test_a_job_with_a_webhook_inside_is_refused_and_leaves_nothing(client, context):
    files = {"file": ("a.wav", SPEECH.read_bytes(), "audio/wav")}
    data = {"webhook_url": "http://169.254.169.254/latest"}
    answer = client.post("/v1/jobs", files=files, data=data)
    assert answer.status_code == 400
    assert answer.json()["param"] == "webhook_url"
    assert list(context.storage.list("media/")) == []


def test_a_completed_job_reaches_endpoint_and_own_url_with_what_get_shows(client, context):
    endpoint_id = create(client).json()["id"]
    job_id = submit(client, webhook_url="https://example.org/own", metadata='{"ort":"Zürich"}')
    from uuid import UUID

    finish_now(context, UUID(job_id))

    page = client.get("/v1/deliveries", params={"job_id": job_id}).json()["data"]
    assert {d["endpoint_id"] for d in page} == {endpoint_id, None}
    assert {d["event_type"] for d in page} == {"job.completed"}
    shown = client.get(f"/v1/jobs/{job_id}").json()
    for delivery in page:
        detail = client.get(f"/v1/deliveries/{delivery['id']}").json()
        payload = json.loads(detail["payload"])
        assert payload["type"] == "job.completed"
        assert payload["data"] == shown
        assert detail["attempt_log"] == []


def test_a_test_event_goes_to_the_endpoint_alone(client):
    endpoint_id = create(client).json()["id"]
    create(client)
    answer = client.post(f"/v1/webhooks/{endpoint_id}/test")
    assert answer.status_code == 202
    assert answer.json()["event_type"] == "webhook.test"
    assert len(client.get("/v1/deliveries").json()["data"]) == 1
    assert client.post(f"/v1/webhooks/{endpoint_id}/test").json()["id"] != answer.json()["id"]


def test_rotation_keeps_the_old_secret_for_a_while(client, context):
    created = create(client).json()
    rotated = client.post(f"/v1/webhooks/{created['id']}/rotate")
    assert rotated.status_code == 200
    assert rotated.json()["secret"] != created["secret"]
    with context.sessions() as session:
        endpoint = session.query(WebhookEndpoint).one()
        assert endpoint.previous_secret == created["secret"]
        assert endpoint.previous_secret_expires_at is not None
        in_rows = text("SELECT secret || previous_secret FROM webhook_endpoints")
        assert "whsec_" not in session.scalar(in_rows)


def test_disabling_cancels_what_waits_and_enabling_lets_it_be_replayed(client):
    endpoint_id = create(client).json()["id"]
    delivery_id = client.post(f"/v1/webhooks/{endpoint_id}/test").json()["id"]
    disabled = client.patch(f"/v1/webhooks/{endpoint_id}", json={"disabled": True}).json()
    assert (disabled["status"], disabled["disabled_reason"]) == ("disabled", "by_owner")
    assert client.get(f"/v1/deliveries/{delivery_id}").json()["status"] == "cancelled"
    assert client.post(f"/v1/webhooks/{endpoint_id}/test").status_code == 409
    assert client.post(f"/v1/deliveries/{delivery_id}/replay").status_code == 409

    client.patch(f"/v1/webhooks/{endpoint_id}", json={"disabled": False})
    replayed = client.post(f"/v1/deliveries/{delivery_id}/replay")
    assert replayed.status_code == 202
    assert replayed.json()["status"] == "pending"


def test_a_delivery_that_waits_already_cannot_be_replayed(client):
    endpoint_id = create(client).json()["id"]
    delivery_id = client.post(f"/v1/webhooks/{endpoint_id}/test").json()["id"]
    assert client.post(f"/v1/deliveries/{delivery_id}/replay").status_code == 409


def test_a_replay_is_carried_out_once_for_each_idempotency_key(client):
    endpoint = create(client).json()
    delivery = client.post(f"/v1/webhooks/{endpoint['id']}/test").json()
    client.patch(f"/v1/webhooks/{endpoint['id']}", json={"disabled": True})
    client.patch(f"/v1/webhooks/{endpoint['id']}", json={"disabled": False})
    url, once = f"/v1/deliveries/{delivery['id']}/replay", {"Idempotency-Key": "again"}

    first, second = client.post(url, headers=once), client.post(url, headers=once)

    assert (first.status_code, second.status_code) == (202, 202)
    assert second.json() == first.json()
    assert second.headers["Idempotent-Replayed"] == "true"
    assert client.post(url).status_code == 409  # it waits already


def test_a_deleted_endpoint_takes_no_more_and_its_log_stays(client):
    endpoint_id = create(client).json()["id"]
    delivery_id = client.post(f"/v1/webhooks/{endpoint_id}/test").json()["id"]
    assert client.delete(f"/v1/webhooks/{endpoint_id}").status_code == 204
    assert client.get(f"/v1/webhooks/{endpoint_id}").status_code == 404
    shown = client.get(f"/v1/deliveries/{delivery_id}").json()
    assert (shown["status"], shown["endpoint_id"]) == ("cancelled", None)
    assert client.post(f"/v1/deliveries/{delivery_id}/replay").status_code == 409


def test_deliveries_come_in_pages_newest_first(client):
    endpoint_id = create(client).json()["id"]
    sent = [client.post(f"/v1/webhooks/{endpoint_id}/test").json()["id"] for _ in range(5)]
    seen, cursor = [], None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = client.get("/v1/deliveries", params=params).json()
        seen += [d["id"] for d in page["data"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == sent[::-1]


def test_another_key_sees_and_changes_nothing(client, context):
    endpoint_id = create(client).json()["id"]
    delivery_id = client.post(f"/v1/webhooks/{endpoint_id}/test").json()["id"]
    with client_of(context, make_key(context, name="other")) as other:
        assert other.get("/v1/webhooks").json() == {"data": []}
        assert other.get("/v1/deliveries").json()["data"] == []
        answers = [
            other.get(f"/v1/webhooks/{endpoint_id}"),
            other.patch(f"/v1/webhooks/{endpoint_id}", json={"disabled": True}),
            other.delete(f"/v1/webhooks/{endpoint_id}"),
            other.post(f"/v1/webhooks/{endpoint_id}/test"),
            other.post(f"/v1/webhooks/{endpoint_id}/rotate"),
            other.get(f"/v1/deliveries/{delivery_id}"),
            other.post(f"/v1/deliveries/{delivery_id}/replay"),
            other.get("/v1/webhooks/nonsense"),
        ]
    assert {a.status_code for a in answers} == {404}


def test_a_key_that_may_only_read_changes_nothing(context):
    with client_of(context, make_key(context, "read")) as reader:
        assert reader.get("/v1/webhooks").status_code == 200
        assert create(reader).status_code == 403
        assert reader.post("/v1/webhooks/signing-secret").status_code == 403


def test_deleting_a_job_deletes_its_deliveries(client, context):
    create(client)
    job_id = submit(client)
    client.post(f"/v1/jobs/{job_id}/cancel")
    with context.sessions() as session:
        assert session.query(Delivery).count() == 1
    client.delete(f"/v1/jobs/{job_id}")
    with context.sessions() as session:
        assert session.query(Delivery).count() == 0


def test_the_signing_secret_of_a_key_is_replaced_and_shown_once(client):
    first = client.post("/v1/webhooks/signing-secret").json()["secret"]
    second = client.post("/v1/webhooks/signing-secret").json()["secret"]
    assert first != second
    check_secret(second, param="secret")


def test_there_is_an_end_to_the_endpoints_of_a_key(sqlite_client):
    for _ in range(20):
        assert create(sqlite_client).status_code == 201
    assert create(sqlite_client).status_code == 409
