import os
import signal
import threading

import pytest

from cli import waiting
from cli.waiting import Stopped, stop_signals, wait_until
from core.errors import ServiceUnavailable


def test_the_first_signal_is_noted_and_its_echo_ignored():
    with stop_signals() as stop:
        ended = []
        stop.at_once = lambda: ended.append("killed")
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.event.is_set()
        assert stop.number == signal.SIGTERM
        assert ended == []
        with pytest.raises(Stopped):
            stop.check()


def test_a_later_signal_ends_everything_at_once(monkeypatch):
    monkeypatch.setattr(waiting, "_ECHO_S", 0.0)
    codes = []
    monkeypatch.setattr(waiting.os, "_exit", codes.append)
    with stop_signals() as stop:
        ended = []
        stop.at_once = lambda: ended.append("killed")
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert ended == ["killed"]
    assert codes == [130]


def test_signals_are_as_before_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_waiting_ends_with_the_condition():
    answers = iter([False, False, True])
    wait_until(lambda: next(answers), what="It", timeout_s=10, stop=threading.Event())


def test_waiting_ends_with_a_failure_that_makes_it_pointless():
    with pytest.raises(ServiceUnavailable, match="the worker is dead"):
        wait_until(
            lambda: False,
            what="It",
            timeout_s=10,
            stop=threading.Event(),
            find_failure=lambda: "the worker is dead",
        )


def test_waiting_ends_when_time_is_over():
    with pytest.raises(ServiceUnavailable, match="Redis did not answer within 0 s"):
        wait_until(lambda: False, what="Redis did not answer", timeout_s=0, stop=threading.Event())


def test_waiting_ends_when_somebody_wants_to_stop():
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        wait_until(lambda: False, what="It", timeout_s=10, stop=stop)
