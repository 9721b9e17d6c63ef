"""Networks of tokens: LEAF's LSTM and a small transformer."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

from feddst.models import ModelConfig, multiply_adds, network, prunable_layers
from feddst.models.text import Attention, lstm, transformer

SMALL: dict[str, Callable[[], nn.Sequential]] = {
    "lstm": lambda: lstm((6,), 5, width=3, hidden=4, layers=2),
    "transformer": lambda: transformer((6,), 5, width=4, heads=2, layers=1),
}
TOKENS = torch.tensor([[0, 1, 2, 3, 4, 0], [4, 4, 3, 2, 1, 1]])


@pytest.mark.parametrize(
    ("name", "size"),
    [
        # 81 × 8; two layers with four gates of 256 × (inputs + 256) weights and 2 × 256 biases each; 257 × 81.
        ("char-lstm", 81 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2) + 257 * 81),
        # (81 + 80) × 128; twice four projections, two linear layers, two norms; a norm; 129 × 81.
        ("char-transformer", 161 * 128 + 2 * (4 * 129 * 128 + 129 * 512 + 513 * 128 + 4 * 128) + 256 + 129 * 81),
    ],
)
def test_the_sizes(name: str, size: int) -> None:
    module = network(ModelConfig(name=name), (80,), 81, torch.int64)  # type: ignore[arg-type]
    assert sum(value.numel() for value in module.parameters()) == size
    assert module(torch.zeros(2, 80, dtype=torch.int32)).shape == (2, 81, 80)


@pytest.mark.parametrize("make", SMALL.values(), ids=SMALL)
def test_no_position_sees_a_later_one(make: Callable[[], nn.Sequential]) -> None:
    module = make().eval()
    changed = TOKENS.clone()
    changed[:, 4] = 2
    before, after = module(TOKENS), module(changed)
    assert before.shape == (2, 5, 6)
    assert torch.equal(before[:, :, :4], after[:, :, :4])
    assert not torch.allclose(before[:, :, 4], after[:, :, 4])


@pytest.mark.parametrize("make", SMALL.values(), ids=SMALL)
def test_shorter_texts_are_the_beginnings_of_longer_ones(make: Callable[[], nn.Sequential]) -> None:
    module = make().eval()
    assert torch.allclose(module(TOKENS[:, :3]), module(TOKENS)[:, :, :3], atol=1e-6)


def test_attention_by_hand() -> None:
    """One head of width 1 whose projections are all 1: the second position mixes both values by softmax."""
    attention = Attention(1, 1)
    for linear in (attention.query, attention.key, attention.value, attention.out):
        nn.init.ones_(linear.weight)
        nn.init.zeros_(linear.bias)
    first, second = attention(torch.tensor([[[1.0], [2.0]]]))[0, :, 0].tolist()
    assert first == 1  # it sees itself only
    # Scores 2 · 1 and 2 · 2: e²/(e² + e⁴) of the value 1, and the rest of 2.
    assert second == pytest.approx(1 * 0.1192029 + 2 * 0.8807971)


def test_projections_and_gates_may_be_pruned_and_embeddings_not() -> None:
    found = [layer.name.removesuffix(".weight") for layer in prunable_layers(SMALL["transformer"]())]
    projections = [f"block1.attention.{name}" for name in ("query", "key", "value", "out")]
    assert found == [*projections, "block1.wide", "block1.narrow", "output"]
    gates = [f"lstm.weight_{source}_l{layer}" for layer in (0, 1) for source in ("ih", "hh")]
    assert [layer.name for layer in prunable_layers(SMALL["lstm"]())] == [*gates, "output.weight"]


def test_each_position_is_multiplied_by_each_weight() -> None:
    module = SMALL["transformer"]()
    counts = multiply_adds(module, TOKENS[:1])
    params = dict(module.named_parameters())
    assert counts == {layer.name: 6 * params[layer.name].numel() for layer in prunable_layers(module)}


def test_the_transformer_of_several_clients_trains_side_by_side() -> None:
    """The gradients that `torch.func` gives for two models at once are those of each alone."""
    modules = [SMALL["transformer"]() for _ in range(2)]
    stacked = {
        name: torch.stack([dict(module.named_parameters())[name] for module in modules])
        for name, _ in modules[0].named_parameters()
    }

    def loss(params: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(functional_call(modules[0], params, (tokens,)), tokens)

    together = vmap(grad(loss))(stacked, torch.stack([TOKENS, TOKENS.flip(0)]))
    for number, tokens in enumerate((TOKENS, TOKENS.flip(0))):
        alone = grad(loss)(dict(modules[number].named_parameters()), tokens)
        for name, value in alone.items():
            assert torch.allclose(together[name][number], value, atol=1e-6), name
