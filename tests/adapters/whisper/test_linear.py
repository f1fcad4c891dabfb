"""8-bit products: near the exact ones, and a row's answer is its own."""

import pytest
import torch

from adapters.whisper.linear import Storage, make_linear


@pytest.fixture
def layer() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(64, 48)


@pytest.fixture
def rows() -> torch.Tensor:
    torch.manual_seed(1)
    rows = torch.randn(9, 64)
    rows[:, 5] *= 20  # a channel that outshouts the others, as in real models
    return rows


def error(layer: torch.nn.Linear, rows: torch.Tensor, storage: Storage) -> float:
    with torch.inference_mode():
        exact = layer(rows)
        return float((make_linear([layer], storage)(rows) - exact).norm() / exact.norm())


def test_plain_is_exact(layer: torch.nn.Linear, rows: torch.Tensor) -> None:
    assert error(layer, rows, Storage.PLAIN) < 1e-6


def test_the_second_part_of_the_activations_takes_most_of_the_error_away(
    layer: torch.nn.Linear, rows: torch.Tensor
) -> None:
    coarse, fine = (error(layer, rows, kind) for kind in (Storage.INT8, Storage.INT8_FINE))

    assert coarse < 0.05
    assert fine < coarse / 2


@pytest.mark.parametrize("storage", [Storage.INT8, Storage.INT8_FINE])
def test_a_loud_neighbour_changes_nothing(
    layer: torch.nn.Linear, rows: torch.Tensor, storage: Storage
) -> None:
    product = make_linear([layer], storage)
    louder = rows.clone()
    louder[1:] *= 1000

    with torch.inference_mode():
        assert torch.equal(product(rows)[0], product(louder)[0])
        assert torch.equal(product(rows[:1])[0], product(rows)[0])


def test_layers_are_joined_side_by_side_and_a_missing_bias_is_zero(rows: torch.Tensor) -> None:
    first, second = torch.nn.Linear(64, 8, bias=False), torch.nn.Linear(64, 4)

    with torch.inference_mode():
        joined = make_linear([first, second], Storage.PLAIN)(rows)

        assert torch.allclose(joined, torch.cat([first(rows), second(rows)], dim=-1), atol=1e-6)
