from tests.integration.api.conftest import client_of, make_key


def test_an_administrator_makes_limits_and_revokes_keys(context):
    with client_of(context, make_key(context, "admin")) as admin:
        created = admin.post(
            "/v1/keys", json={"name": "archive", "scopes": ["read"], "limits": {"active_jobs": 2}}
        )
        assert created.status_code == 201, created.text
        secret, path = created.json()["key"], created.headers["location"]
        with client_of(context, secret) as holder:
            assert holder.get("/v1/jobs").status_code == 200
            assert holder.post("/v1/webhooks", json={"url": "https://x.org/"}).status_code == 403
            assert holder.get("/v1/keys").status_code == 403

            changed = admin.patch(path, json={"limits": {"priority": "bulk"}})
            assert changed.json()["limits"] == {"priority": "bulk"}
            listed = admin.get("/v1/keys")
            assert "archive" in listed.text
            assert secret not in listed.text + changed.text

            assert admin.delete(path).json()["revoked_at"] is not None
            assert holder.get("/v1/jobs").status_code == 401


def test_keys_that_mean_nothing_are_refused(sqlite_context):
    with client_of(sqlite_context, make_key(sqlite_context, "admin")) as admin:
        for body in ({"name": ""}, {"name": "a", "scopes": []}, {"name": "a", "scopes": ["root"]}):
            assert admin.post("/v1/keys", json=body).status_code == 422
        wrong = admin.post("/v1/keys", json={"name": "a", "limits": {"colour": 1}})
        assert (wrong.status_code, wrong.json()["param"]) == (400, "colour")
        local = "00000000-0000-7000-8000-000000000001"
        assert admin.delete(f"/v1/keys/{local}").status_code == 404
        assert admin.patch(f"/v1/keys/{local}", json={"limits": {}}).status_code == 404


def test_without_the_scope_nobody_sees_keys(client):
    assert client.get("/v1/keys").status_code == 403
    assert client.post("/v1/keys", json={"name": "a"}).status_code == 403
