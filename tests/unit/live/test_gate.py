"""Live steps go before batches, and batches are not starved."""

import threading

import pytest

from tests.support.processes import wait_for
from workers import gate as gates
from workers.gate import ModelGate


def take(gate: ModelGate, kind: str, order: list[str]) -> threading.Thread:
    """Start a thread that wants the models and writes down when it has them."""

    def run() -> None:
        with getattr(gate, kind)():
            order.append(kind)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def num_waiting(gate: ModelGate) -> int:
    return len(gate._changed._waiters)


def test_a_live_step_overtakes_a_batch_that_waits() -> None:
    gate, order = ModelGate(), []
    with gate.batch():
        threads = [take(gate, "batch", order)]
        wait_for(lambda: num_waiting(gate) == 1, what="the batch waits")
        threads.append(take(gate, "live", order))
        wait_for(lambda: num_waiting(gate) == 2, what="the live step waits")
    for thread in threads:
        thread.join(30)
    assert order == ["live", "batch"]


def test_a_batch_that_gave_way_for_long_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "MAX_BATCH_WAIT_S", 0.05)
    gate, order = ModelGate(), []
    with gate.live():
        threads = [take(gate, "batch", order)]
        wait_for(lambda: gate._num_overdue == 1, what="the batch has waited for long")
        threads.append(take(gate, "live", order))
        wait_for(lambda: num_waiting(gate) == 2, what="the live step waits")
    for thread in threads:
        thread.join(30)
    assert order == ["batch", "live"]


def test_an_error_gives_the_models_back() -> None:
    gate = ModelGate()
    with pytest.raises(ValueError, match="no"), gate.live():
        raise ValueError("no")
    with gate.batch():
        pass
