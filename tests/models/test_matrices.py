"""Which weights may be pruned: convolutions, linear layers, recurrent ones and attention."""

import pytest
import torch
from torch import Tensor, nn

from feddst.core.model import Layer
from feddst.models import multiply_adds, prunable_layers
from feddst.models.timing import layer_times
from feddst.sparsity import Sparsity


def found(module: nn.Module) -> dict[str, tuple[tuple[int, ...], int]]:
    return {layer.name: (layer.shape, layer.stacked) for layer in prunable_layers(module)}


def test_all_gates_of_recurrent_layers() -> None:
    lstm = nn.LSTM(3, 5, num_layers=2, bidirectional=True, proj_size=2)
    both: dict[str, tuple[tuple[int, ...], int]] = {}
    for end in ("", "_reverse"):
        both |= {
            f"weight_ih_l0{end}": ((20, 3), 4),
            f"weight_hh_l0{end}": ((20, 2), 4),
            f"weight_hr_l0{end}": ((2, 5), 1),
        }
        both |= {
            f"weight_ih_l1{end}": ((20, 4), 4),
            f"weight_hh_l1{end}": ((20, 2), 4),
            f"weight_hr_l1{end}": ((2, 5), 1),
        }
    assert found(lstm) == both
    assert found(nn.GRU(3, 5)) == {"weight_ih_l0": ((15, 3), 3), "weight_hh_l0": ((15, 5), 3)}
    assert found(nn.RNN(3, 5)) == {"weight_ih_l0": ((5, 3), 1), "weight_hh_l0": ((5, 5), 1)}
    assert found(nn.GRUCell(3, 5)) == {"weight_ih": ((15, 3), 3), "weight_hh": ((15, 5), 3)}
    assert found(nn.LSTMCell(3, 5)) == {"weight_ih": ((20, 3), 4), "weight_hh": ((20, 5), 4)}
    assert found(nn.RNNCell(3, 5)) == {"weight_ih": ((5, 3), 1), "weight_hh": ((5, 5), 1)}


def test_attention_in_one_piece_and_in_three() -> None:
    assert found(nn.MultiheadAttention(4, 2)) == {"in_proj_weight": ((12, 4), 3), "out_proj.weight": ((4, 4), 1)}
    apart = found(nn.MultiheadAttention(4, 2, kdim=3, vdim=5))
    assert apart == {
        "q_proj_weight": ((4, 4), 1),
        "k_proj_weight": ((4, 3), 1),
        "v_proj_weight": ((4, 5), 1),
        "out_proj.weight": ((4, 4), 1),
    }


def test_biases_beside_them_are_found() -> None:
    assert {layer.name: layer.biases for layer in prunable_layers(nn.GRU(3, 5))} == {
        "weight_ih_l0": 15,
        "weight_hh_l0": 15,
    }
    assert [layer.biases for layer in prunable_layers(nn.MultiheadAttention(4, 2))] == [12, 4]


@pytest.mark.parametrize("distribution", ["er", "erk"])
def test_stacked_matrices_have_the_budget_that_they_would_have_apart(distribution: str) -> None:
    together = [Layer("qkv", (60, 20), stacked=3), Layer("out", (20, 20)), Layer("head", (10, 20))]
    apart = [*(Layer(name, (20, 20)) for name in "qkv"), *together[1:]]
    one = Sparsity(0.8, distribution).budgets(together)  # type: ignore[arg-type]
    three = Sparsity(0.8, distribution).budgets(apart)  # type: ignore[arg-type]
    assert one["qkv"] == pytest.approx(sum(three[name] for name in "qkv"), abs=2)
    assert one["qkv"] == pytest.approx(3 * one["out"], abs=2)


def test_multiply_adds_of_every_step_and_of_every_place() -> None:
    # Seven steps, forwards and backwards: 4 gates × 5 units × 3 inputs, and × 5 of the state before.
    counts = multiply_adds(nn.LSTM(3, 5, bidirectional=True, batch_first=True), torch.zeros(1, 7, 3))
    assert counts == {
        f"weight_{way}_l0{end}": 7 * 20 * n for way, n in (("ih", 3), ("hh", 5)) for end in ("", "_reverse")
    }
    assert multiply_adds(nn.GRUCell(3, 5), torch.zeros(1, 3)) == {"weight_ih": 15 * 3, "weight_hh": 15 * 5}
    # Six places, each by three matrices of 4 × 4 and, once it has been attended to, by a fourth.
    assert multiply_adds(Attending(), torch.zeros(1, 6, 4)) == {
        "attention.in_proj_weight": 6 * 3 * 16,
        "attention.out_proj.weight": 6 * 16,
        "head.weight": 4 * 2,
    }


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.attention(x, x, value=x)[0].mean(1))
        return scores


def test_attention_can_be_timed() -> None:
    module = Attending()
    times = layer_times(module, torch.zeros(1, 6, 4), 2, prunable_layers(module), "measured")
    assert times.per_weight.keys() == {"attention.in_proj_weight", "attention.out_proj.weight", "head.weight"}
    assert times.per_weight["attention.in_proj_weight"] == times.per_weight["attention.out_proj.weight"] > 0
