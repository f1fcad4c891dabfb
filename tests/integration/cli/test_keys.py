"""`scriptorium keys` on a database of its own."""

import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from cli.main import app
from core.db import make_engine, make_sessions, read_session
from core.errors import InvalidOption
from core.keys import hash_key
from migrations.run import migrate
from models import ApiKey


@pytest.fixture
def run(settings, tmp_path, monkeypatch):
    migrate(settings(data_dir=tmp_path))
    monkeypatch.setenv("SCRIPTORIUM_DATA_DIR", str(tmp_path))
    return lambda *arguments: CliRunner().invoke(app, ["keys", *arguments])


def test_a_key_is_made_with_scopes_and_limits_and_listed_with_them(run, settings, tmp_path):
    options = ("--scope", "read", "--limit", "active_jobs=3", "--limit", "priority=bulk")
    made = run("create", "archive", *options)
    engine = make_engine(settings(data_dir=tmp_path).database)
    with read_session(make_sessions(engine)) as session:
        query = select(ApiKey).where(ApiKey.key_hash == hash_key(made.output.strip()))
        key = session.scalars(query).one()
        assert (key.scopes, key.limits) == (["read"], {"active_jobs": 3, "priority": "bulk"})
    engine.dispose()
    assert "active_jobs=3,priority=bulk" in run("list").output


@pytest.mark.parametrize("limit", ["jobs=1", "active_jobs", "active_jobs=few", "priority=1"])
def test_a_limit_that_is_none_is_refused_and_no_key_is_made(run, limit):
    refused = run("create", "archive", "--limit", limit)
    assert isinstance(refused.exception, InvalidOption)
    assert "archive" not in run("list").output
