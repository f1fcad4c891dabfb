"""Lists of jobs: pages, filters, and queries that make no sense."""

from uuid import UUID

import pytest
from fastapi.testclient import TestClient

from api.context import ApiContext
from tests.integration.api.fakes import fail
from tests.integration.api.test_jobs import post


def test_pages_neither_repeat_nor_miss_jobs_while_others_come_and_go(client: TestClient):
    first = [post(client, reference="old").json()["id"] for _ in range(12)]
    seen: list[str] = []
    cursor = None
    while True:
        params = {"limit": 5} | ({"cursor": cursor} if cursor else {})
        page = client.get("/v1/jobs", params=params).json()
        seen += [job["id"] for job in page["data"]]
        if cursor is None:
            for _ in range(3):
                post(client, reference="new")
            client.delete(f"/v1/jobs/{first[11]}")
            client.delete(f"/v1/jobs/{first[0]}")
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen))
    assert set(first[1:]) <= set(seen)
    assert seen == sorted(seen, reverse=True)


def test_lists_filter(client: TestClient, context: ApiContext):
    one = post(client, reference="a").json()
    two = post(client, reference="b").json()
    fail(context, UUID(two["id"]), "media_gone", "It went.")

    def ids(**params: str) -> list[str]:
        response = client.get("/v1/jobs", params=params)
        assert response.status_code == 200, response.text
        return [job["id"] for job in response.json()["data"]]

    assert ids(reference="a") == [one["id"]]
    assert ids(status="failed") == [two["id"]]
    assert ids(created_after=one["created_at"]) == [two["id"]]
    assert ids(created_before=two["created_at"]) == [one["id"]]
    assert ids(created_before="2020-01-01T00:00:00") == []
    assert ids(batch_id="00000000-0000-0000-0000-000000000000") == []


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"limit": "0"}, 422),
        ({"limit": "x"}, 422),
        ({"status": "done"}, 422),
        ({"cursor": "x"}, 400),
        ({"cursor": "ÿ"}, 400),
        ({"cursor": "WzEsMl0"}, 400),
        ({"batch_id": "x"}, 400),
        ({"created_after": "yesterday"}, 422),
        ({"created_after": "0001-01-01T00:00:00+14:00"}, 400),
        ({"reference": "\0"}, 400),
    ],
)
def test_bad_queries_are_refused(client: TestClient, params, status):
    response = client.get("/v1/jobs", params=params)
    assert response.status_code == status, response.text
    assert response.json()["param"] == next(iter(params))


@pytest.mark.parametrize(
    ("method", "path", "param"),
    [
        ("GET", "/v1/jobs?state=failed", "state"),
        ("POST", "/v1/batches?dryrun=true", "dryrun"),
        ("POST", "/v1/batches?dry_run=true&Options={}", "Options"),
        ("GET", "/v1/deliveries?job=1", "job"),
        ("GET", "/v1/webhooks?limit=1", "limit"),
        ("POST", "/v1/jobs?language=fr", "language"),
    ],
)
def test_a_parameter_that_would_be_passed_over_is_refused_by_name(
    client: TestClient, method: str, path: str, param: str
):
    response = client.request(method, path, json={"prefix": "inbox/"} if method == "POST" else None)
    assert response.status_code == 400
    assert response.json()["param"] == param
    assert client.get("/v1/batches").json()["data"] == []
