"""Who may do what, and that nobody sees another's things."""

import json

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from api.context import ApiContext
from core.db import read_session, unit_of_work
from lifecycle.keys import revoke_key
from models import ApiKey
from tests.integration.api.conftest import client_of, make_key
from tests.integration.api.fakes import now
from tests.integration.api.test_jobs import post


def test_a_job_of_another_key_does_not_exist(client: TestClient, context: ApiContext):
    job_id = post(client).json()["id"]
    with client_of(context, make_key(context, "submit", "read", "admin")) as stranger:
        for method, path in [
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/cancel"),
            ("POST", "/retry"),
            ("GET", "/transcript"),
            ("GET", "/media"),
            ("GET", "/events"),
        ]:
            response = stranger.request(method, f"/v1/jobs/{job_id}{path}")
            assert (response.status_code, response.json()["code"]) == (404, "job_not_found")
        assert stranger.get("/v1/jobs").json()["data"] == []
    assert client.get(f"/v1/jobs/{job_id}").status_code == 200


@pytest.mark.parametrize(
    "header", [None, "Bearer", "Bearer sk-wrong", "Basic c2s6", "Bearer sk-\xff"]
)
def test_without_a_valid_key_nothing_is_told(sqlite_context: ApiContext, header):
    with client_of(sqlite_context, None) as client:
        headers = {"Authorization": header.encode("latin-1")} if header else {}
        response = client.get("/v1/jobs", headers=headers)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    assert response.json()["code"] == "unauthenticated"


def test_scopes_and_revocation_hold(sqlite_context: ApiContext):
    with client_of(sqlite_context, make_key(sqlite_context, "read")) as reader:
        assert reader.get("/v1/jobs").status_code == 200
        assert post(reader).status_code == 403
    with client_of(sqlite_context, make_key(sqlite_context, "submit")) as submitter:
        assert submitter.get("/v1/jobs").status_code == 403

    key = make_key(sqlite_context)
    with client_of(sqlite_context, key) as client:
        assert client.get("/v1/jobs").status_code == 200
        with unit_of_work(sqlite_context.sessions) as uow:
            row = uow.session.scalars(
                select(ApiKey).where(ApiKey.last_used_at.is_not(None)).order_by(ApiKey.id.desc())
            ).first()
            assert row is not None
            revoke_key(uow, row.id, now=now())
        assert client.get("/v1/jobs").status_code == 401


def test_keys_are_stored_as_hashes_only(sqlite_context: ApiContext):
    secret = make_key(sqlite_context)
    with read_session(sqlite_context.sessions) as session:
        row = session.scalars(select(ApiKey).where(ApiKey.prefix == secret[:11])).one()
    assert secret not in json.dumps([row.key_hash, row.prefix, row.name])
    assert len(row.key_hash) == 64
