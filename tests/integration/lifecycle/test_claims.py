"""Who gets windows, in which order, and that nobody gets them twice."""

import threading
from collections import Counter
from datetime import timedelta

from sqlalchemy import select

from core.db import read_session, unit_of_work
from core.ids import new_id
from lifecycle.claims import ACTIVE_JOBS, ClaimRequest, claim_windows, find_waiting_models
from lifecycle.fairness import Rotation
from models import Window, WindowStatus
from tests.integration.lifecycle.conftest import NOW

REQUEST = ClaimRequest(
    adapter="whisper", model="base", engine="test", lease=timedelta(seconds=30), pool=32
)


def claim(sessions, num_windows: int, rotation: Rotation | None = None) -> list[Window]:
    with unit_of_work(sessions) as uow:
        return claim_windows(
            uow.session,
            REQUEST,
            choose=lambda candidates: candidates[:num_windows],
            rotation=rotation or Rotation(),
            now=NOW,
        )


def test_a_claim_is_a_lease_with_a_new_attempt(sessions, make_job) -> None:
    make_job(1)
    (window,) = claim(sessions, 8)
    assert (window.status, window.attempt, window.claimed_by) == (WindowStatus.RUNNING, 1, "test")
    assert window.lease_expires_at == NOW + timedelta(seconds=30)
    with read_session(sessions) as session:
        stored = session.get_one(Window, window.id)
        assert (stored.status, stored.attempt) == (WindowStatus.RUNNING, 1)
    assert claim(sessions, 8) == []


def test_the_urgent_goes_first_and_the_rest_fills_the_batch(sessions, make_job) -> None:
    bulk = make_job(4, priority=20)
    urgent = make_job(2, priority=0)
    claimed = claim(sessions, 4)
    assert [w.job_id for w in claimed] == [urgent, urgent, bulk, bulk]


def test_a_key_with_many_jobs_does_not_starve_a_key_with_one(sessions, make_job) -> None:
    busy, small = new_id(), new_id()
    for _ in range(40):
        make_job(5, key_id=busy)
    wanted = make_job(3, key_id=small)
    rotation = Rotation()
    served = [w.job_id for _ in range(3) for w in claim(sessions, 2, rotation)]
    assert served.count(wanted) == 3


def test_keys_take_turns_over_claims_of_one_window(sessions, make_job) -> None:
    keys = [new_id() for _ in range(3)]
    for key in keys:
        make_job(9, key_id=key)
    rotation = Rotation()
    served = Counter(claim(sessions, 1, rotation)[0].key_id for _ in range(9))
    assert set(served.values()) == {3}


def test_more_keys_than_one_claim_looks_at_all_get_their_turn(sessions, make_job) -> None:
    keys = [new_id() for _ in range(40)]
    for key in keys:
        make_job(2, key_id=key)
    rotation = Rotation()
    served = Counter(w.key_id for _ in range(10) for w in claim(sessions, 8, rotation))
    assert len(served) == 40


def test_jobs_of_a_key_take_turns_and_each_goes_on_in_order(sessions, make_job) -> None:
    jobs = [make_job(6) for _ in range(3)]
    rotation = Rotation()
    claimed = [w for _ in range(3) for w in claim(sessions, 6, rotation)]
    for job_id in jobs:
        assert [w.index for w in claimed if w.job_id == job_id] == list(range(6))
    first = Counter(w.job_id for w in claimed[:9])
    assert set(first.values()) == {3}


def test_the_oldest_jobs_of_an_archive_finish_first(sessions, make_job) -> None:
    jobs = [make_job(1) for _ in range(ACTIVE_JOBS + 4)]
    claimed = {w.job_id for w in claim(sessions, ACTIVE_JOBS)}
    assert claimed == set(jobs[:ACTIVE_JOBS])


def test_windows_that_wait_for_their_language_are_not_given_out(sessions, make_job) -> None:
    job_id = make_job(2)
    with unit_of_work(sessions) as uow:
        for window in uow.session.scalars(select(Window).where(Window.job_id == job_id)):
            window.is_claimable = False
    assert claim(sessions, 8) == []
    with read_session(sessions) as session:
        assert find_waiting_models(session, "whisper", ["base"]) == {}


def test_only_asked_models_are_seen(sessions, make_job) -> None:
    make_job(1, model="other", priority=0)
    make_job(1, priority=20)
    with read_session(sessions) as session:
        waiting = find_waiting_models(session, "whisper", ["base", "missing"])
    assert waiting == {"base": 20}
    assert {w.model for w in claim(sessions, 8)} == {"base"}


def test_engines_that_claim_at_once_get_different_windows(sessions, make_job) -> None:
    for _ in range(4):
        make_job(25)
    claimed: list[Window] = []
    errors: list[Exception] = []

    def run() -> None:
        rotation = Rotation()
        try:
            while windows := claim(sessions, 4, rotation):
                claimed.extend(windows)
        except Exception as exc:  # noqa: BLE001
            errors.append(exc)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    while rest := claim(sessions, 1000):  # an engine that found everything locked ended early
        claimed.extend(rest)
    assert len(claimed) == len({w.id for w in claimed}) == 100
    assert {w.attempt for w in claimed} == {1}
