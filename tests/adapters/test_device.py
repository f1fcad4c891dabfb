import pytest
import torch

from adapters.device import check_device, is_lost, resolve_device
from core.errors import DeviceMissing
from tests.support.pretend_gpu import PretendGpu


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("count", "name", "device"),
    [
        (0, "auto", "cpu"),
        (0, "auto:3", "cpu"),
        (0, "cpu", "cpu"),
        (1, "auto", "cuda:0"),
        (2, "auto:1", "cuda:1"),
        (2, "auto:2", "cuda:0"),
        (2, "cuda", "cuda"),
        (2, "cuda:1", "cuda:1"),
    ],
)
def test_gpus_are_dealt_out_and_named_ones_are_taken(monkeypatch, count, name, device):
    gpus(monkeypatch, count)
    assert resolve_device(name) == device
    check_device(name)


@pytest.mark.parametrize(("count", "name"), [(0, "cuda"), (0, "cuda:0"), (2, "cuda:2"), (1, "mps")])
def test_a_device_that_is_not_there_is_an_error_that_says_what_is(monkeypatch, count, name):
    gpus(monkeypatch, count)
    for look in (resolve_device, check_device):
        with pytest.raises(DeviceMissing, match=f"'{name}'.* {count} CUDA GPUs"):
            look(name)


def test_a_device_is_lost_when_nothing_can_be_computed_on_it(monkeypatch):
    gpus(monkeypatch, 1)
    with PretendGpu():
        assert not is_lost("cuda")
    assert not is_lost("cpu")
    for error, lost in (
        (torch.AcceleratorError("CUDA error: unspecified launch failure"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), False),
    ):

        def fail(*_sizes, device, error=error):
            raise error

        monkeypatch.setattr(torch, "zeros", fail)
        assert is_lost("auto") == lost
