"""Commit, then effects: never one without the other, never the other way round."""

import sqlite3
import threading
from contextlib import closing

import pytest
from sqlalchemy import event, text

from core.db import make_engine, read_session, unit_of_work
from models import LOCAL_KEY_ID, ApiKey


def rename(uow, name: str) -> None:
    uow.session.get_one(ApiKey, LOCAL_KEY_ID).name = name


def stored_name(sessions) -> str:
    with read_session(sessions) as session:
        return session.get_one(ApiKey, LOCAL_KEY_ID).name


def test_effects_see_what_was_committed(sessions) -> None:
    seen: list[str] = []
    with unit_of_work(sessions) as uow:
        rename(uow, "new")
        uow.after_commit(lambda: seen.append(stored_name(sessions)))
        assert seen == []
    assert seen == ["new"]


def test_an_error_drops_changes_and_effects(sessions) -> None:
    ran: list[str] = []
    with pytest.raises(RuntimeError), unit_of_work(sessions) as uow:
        rename(uow, "new")
        uow.after_commit(lambda: ran.append("effect"))
        raise RuntimeError
    assert ran == []
    assert stored_name(sessions) == "local"


def test_a_commit_that_fails_has_no_effects(sessions) -> None:
    ran: list[str] = []

    def fail(_session) -> None:
        raise RuntimeError("connection lost at commit")

    event.listen(sessions, "before_commit", fail)
    with pytest.raises(RuntimeError), unit_of_work(sessions) as uow:
        uow.after_commit(lambda: ran.append("effect"))
    assert ran == []


def test_what_a_read_session_changes_is_lost(sessions) -> None:
    with read_session(sessions) as session:
        session.get_one(ApiKey, LOCAL_KEY_ID).name = "never"
        session.flush()
    assert stored_name(sessions) == "local"


def test_readers_do_not_wait_for_a_writer(sessions) -> None:
    with unit_of_work(sessions) as uow:
        rename(uow, "new")
        uow.session.flush()
        assert stored_name(sessions) == "local"  # on SQLite a second writer would wait 30 s


def test_a_new_file_is_waited_for_by_who_opens_it_second(tmp_path) -> None:
    with closing(
        sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    ) as first:
        first.execute("BEGIN IMMEDIATE")  # as who creates the tables
        release = threading.Timer(0.3, first.rollback)
        release.start()
        engine = make_engine(f"sqlite:///{tmp_path}/new.db")

        with engine.connect() as connection:  # without a second try: locked, at once
            mode = connection.scalar(text("PRAGMA journal_mode"))

        engine.dispose()
        release.join()
    assert mode == "wal"
