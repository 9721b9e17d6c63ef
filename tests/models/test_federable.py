"""Any module: what is prunable, what stays dense, and how its tensors go in and out."""

from typing import Any

import pytest
import torch
from torch import nn

from feddst.errors import ModelError
from feddst.models import (
    ModelConfig,
    check_fit,
    dense_reasons,
    initial_model,
    load,
    make_module,
    multiply_adds,
    network,
    prunable_layers,
)
from feddst.objectives import CrossEntropy


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 3)


def names(module: nn.Module, **choice: tuple[str, ...]) -> list[str]:
    return [layer.name for layer in prunable_layers(module, **choice)]


def test_convolution_and_linear_weights_are_prunable_by_default() -> None:
    assert names(Mixed()) == ["conv.weight", "head.weight"]
    [conv, head] = prunable_layers(Mixed())
    assert (conv.shape, conv.biases, head.shape, head.biases) == ((2, 1, 3, 3), 2, (3, 4), 3)


def test_the_user_may_choose() -> None:
    assert names(Mixed(), prunable=("embed.weight", "head")) == ["embed.weight", "head.weight"]
    assert names(Mixed(), dense=("head",)) == ["conv.weight"]
    assert names(Mixed(), dense=("head.weight", "conv")) == []
    assert names(nn.Linear(3, 2)) == ["weight"]


def test_biases_and_norms_are_never_masked() -> None:
    assert names(Mixed(), prunable=("*",)) == ["conv.weight", "embed.weight", "head.weight"]
    assert names(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm((2, 4))), prunable=("*.weight",)) == ["0.weight"]
    with pytest.raises(ModelError, match=r"model\.prunable names norm\.weight, but biases and norms are never masked"):
        names(Mixed(), prunable=("norm.weight",))


@pytest.mark.parametrize("choice", [{}, {"prunable": ("embed", "head")}, {"dense": ("head*", "conv")}])
def test_what_stays_dense_has_a_reason_and_nothing_else_has(choice: dict[str, tuple[str, ...]]) -> None:
    module = Mixed()
    reasons = dense_reasons(module, **choice)
    assert set(reasons).isdisjoint(names(module, **choice))
    assert {*reasons, *names(module, **choice)} == {name for name, _ in module.named_parameters()}


def test_reasons_to_stay_dense() -> None:
    module = Mixed()
    module.conv.weight.requires_grad = False
    assert dense_reasons(module, dense=("head",)) == {
        "conv.weight": "frozen",
        "conv.bias": "a bias or other vector",
        "norm.weight": "part of a norm",
        "norm.bias": "part of a norm",
        "embed.weight": "an embedding",
        "head.weight": "named by model.dense",
        "head.bias": "a bias or other vector",
    }
    assert dense_reasons(Mixed(), prunable=("head",))["conv.weight"] == "not named by model.prunable"


def test_a_pattern_that_matches_nothing_is_refused() -> None:
    with pytest.raises(ModelError, match=r"model\.dense names 'hed', but the model's parameters are conv\.weight"):
        names(Mixed(), dense=("hed",))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("mnist-cnn", (1, 28, 28), 10, 261_840),
        ("cifar10-cnn", (3, 32, 32), 10, 782_006),
        ("cifar100-cnn", (3, 32, 32), 100, 783_092),
    ],
)
def test_the_papers_networks_have_the_papers_sizes(
    name: str, shape: tuple[int, ...], classes: int, parameters: int
) -> None:
    for chosen in (name, "auto"):
        module = network(ModelConfig(name=chosen), shape, classes)  # type: ignore[arg-type]
        assert sum(p.numel() for p in module.parameters()) == parameters
        assert module(torch.zeros(2, *shape)).shape == (2, classes)


def test_the_softmax_head_gives_probabilities() -> None:
    module = network(ModelConfig(head="softmax"), (1, 28, 28), 10)
    assert torch.allclose(module(torch.randn(3, 1, 28, 28)).sum(dim=1), torch.ones(3))


def test_images_too_small_for_the_network_are_refused() -> None:
    with pytest.raises(ModelError, match="at least 13×13 pixels"):
        network(ModelConfig(), (1, 8, 8), 10)


def test_initial_weights_follow_the_seed_alone() -> None:
    def weights(seed: int) -> torch.Tensor:
        module = make_module(lambda: nn.Linear(4, 4), seed)
        return next(module.parameters()).detach()

    torch.manual_seed(0)
    first = weights(1)
    torch.manual_seed(5)
    assert torch.equal(first, weights(1))
    assert not torch.equal(first, weights(2))


def test_a_module_as_it_is_keeps_its_weights() -> None:
    module = nn.Linear(2, 2)
    assert make_module(module, 3) is module
    with pytest.raises(ModelError, match="got int"):
        make_module(lambda: 3, 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(ModelError, match="got 'resnet18'"):
        make_module("resnet18", 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(6, 2), "the model gives 2 outputs, but the labels are 0 to 3"),
        (nn.Linear(5, 4), "the model does not take inputs float32 [6]: mat1 and mat2 shapes"),
        (nn.Unflatten(1, (2, 3)), "the model must give scores of shape [examples, classes], got shape (2, 2, 3)"),
        (nn.LSTM(6, 4), "the model must give scores of shape [examples, classes], got tuple"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        check_fit(module, torch.zeros(2, 6), torch.zeros(2), CrossEntropy(), 4)
    assert str(caught.value).startswith(message)
    assert module.training


def test_a_model_that_fits_is_not() -> None:
    check_fit(nn.Linear(6, 4), torch.zeros(2, 6), torch.zeros(2), CrossEntropy(), 4)


def test_tensors_come_out_as_copies_and_go_back_in() -> None:
    module = Mixed()
    model = initial_model(module)
    assert set(model.buffers) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    with torch.no_grad():
        module.head.weight.zero_()
        module.norm(torch.randn(4, 2, 3, 3))
    assert model.params["head.weight"].any()
    load(module, model.params, model.buffers)
    assert torch.equal(module.head.weight, model.params["head.weight"])
    assert module.norm.num_batches_tracked == 0


def test_frozen_weights_are_not_pruned() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    module[0].weight.requires_grad_(False)
    assert [layer.name for layer in prunable_layers(module)] == ["1.weight"]
    with pytest.raises(ModelError, match=r"model\.prunable names 0\.weight, which is frozen"):
        prunable_layers(module, prunable=["0"])


class Tied(nn.Module):
    """One weight that an embedding looks up, and an output layer multiplies by; the first one's name is kept."""

    def __init__(self, first: str = "embedding") -> None:
        super().__init__()
        layers: dict[str, Any] = {"embedding": nn.Embedding(5, 4), "middle": nn.Linear(4, 4), "output": nn.Linear(4, 5)}
        layers["output"].weight = layers["embedding"].weight
        self.layers = nn.ModuleDict({name: layers[name] for name in sorted(layers, key=lambda name: name != first)})

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers["output"](self.layers["middle"](self.layers["embedding"](x)).mean(dim=1))


@pytest.mark.parametrize("first", ["embedding", "output"])
def test_a_shared_weight_is_one_parameter(first: str) -> None:
    """An embedding stays dense, whatever shares its weight, unless it is named: by any of its names."""
    module, kept = Tied(first), f"layers.{first}.weight"
    assert set(initial_model(module).params) == {
        kept,
        "layers.output.bias",
        "layers.middle.weight",
        "layers.middle.bias",
    }
    assert names(module) == ["layers.middle.weight"]
    assert dense_reasons(module)[kept] == "an embedding"
    for pattern in ("layers.embedding", "layers.output", "layers.out*.weight"):
        assert names(module, prunable=(pattern,)) == [kept]
        assert names(module, prunable=("*",), dense=(pattern,)) == ["layers.middle.weight"]


def test_a_weight_that_linear_layers_share_is_prunable_and_multiplied_by_each() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    assert names(module) == ["0.weight"]
    assert multiply_adds(module, torch.zeros(1, 3)) == {"0.weight": 2 * 9}


def test_a_shared_weight_is_loaded_once_for_all() -> None:
    module, other = Tied(), Tied()
    source = initial_model(other)
    load(module, source.params, source.buffers)
    assert torch.equal(module.get_parameter("layers.output.weight"), other.get_parameter("layers.embedding.weight"))
