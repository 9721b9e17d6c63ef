"""What a network consists of, on the paper's networks with numbers worked out by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from feddst import configure, describe_model, run
from feddst.data import Dataset, federate
from feddst.methods import METHODS
from feddst.runtime.anatomy import Anatomy, anatomy_of
from feddst.runtime.config import config_of
from feddst.sparsity.distribution import Distribution

# CIFAR-10: 32 → conv 5×5 → 28 → pool 3×3 → 26 → conv 5×5 → 22 → pool → 20, then 16·20·20 → 120 → 84 → 10.
DENSE = {
    "conv1.weight": 28 * 28 * 6 * 3 * 25,
    "conv2.weight": 22 * 22 * 16 * 6 * 25,
    "fc1.weight": 6400 * 120,
    "fc2.weight": 120 * 84,
    "fc3.weight": 84 * 10,
}


def anatomy(**options: Any) -> Anatomy:
    return anatomy_of(config_of({name.replace("__", "."): value for name, value in options.items()}))


def test_the_cifar10_network_by_hand() -> None:
    found = anatomy(data__dataset="cifar10")
    assert (found.network, found.sizes.shape, found.sizes.classes) == ("cifar10-cnn", (3, 32, 32), 10)
    weights = [part for part in found.parts if part.name.endswith("weight")]
    assert {part.name: part.multiply_adds for part in weights} == DENSE
    # What ERK keeps at S = 0.8; the first convolution's weights are used at 28·28 places, the second's at 22·22.
    assert [part.kept for part in weights] == [436, 735, 149_660, 4_683, 840]
    assert [part.sparse_multiply_adds for part in weights] == [436 * 784, 735 * 484, 149_660, 4_683, 840]
    assert not any(part.dense for part in weights)
    assert found.multiply_adds == sum(DENSE.values()) == 2_293_320
    assert found.sparse_multiply_adds == 436 * 784 + 735 * 484 + 149_660 + 4_683 + 840 == 852_747
    assert (found.forward_flops_dense, found.forward_flops_sparse) == (4_586_640, 1_705_494)
    biases = {part.name: (part.kept, part.multiply_adds, part.dense) for part in found.parts if part not in weights}
    assert biases["fc1.bias"] == (120, None, "a bias or other vector")
    assert (found.size, found.kept) == (782_006, 436 + 735 + 149_660 + 4_683 + 840 + 6 + 16 + 120 + 84 + 10)


@pytest.mark.parametrize(("spread", "flops"), [("erk", 1.71), ("uniform", 0.92), ("erk-published", 0.95)])
def test_what_each_distribution_makes_of_the_papers_example(spread: Distribution, flops: float) -> None:
    found = anatomy(data__dataset="cifar10", sparsity__distribution=spread)
    assert found.forward_flops_dense / 1e6 == pytest.approx(4.59, abs=0.005)  # the paper has 4.6
    assert found.forward_flops_sparse / 1e6 == pytest.approx(flops, abs=0.005)  # the paper has 0.8


@pytest.mark.parametrize("method", METHODS)
def test_every_methods_network_can_be_looked_at(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr("feddst.runtime.anatomy.load", None)  # no images are needed
    found = anatomy(method=method)
    assert found.multiply_adds == 24 * 24 * 250 + 18 * 18 * 5000 + 256_000 + 500
    assert all(part.kept == part.size for part in found.parts if part.dense)


def test_why_weights_are_not_sparse() -> None:
    def reasons(method: str) -> set[str]:
        return {part.dense for part in anatomy(method=method).parts if part.name.endswith("weight")}

    assert reasons("fedavgm") == {"fedavgm keeps all weights"}
    assert reasons("lotteryfl") == {"pruned in training"}
    assert reasons("prunefl") == reasons("snip") == {"its mask is made in round 0"}
    assert reasons("feddst") == reasons("sprout") == {""}
    chosen = anatomy(model__dense=("conv1",), model__prunable=("conv*", "fc1"))
    assert {part.name: part.dense for part in chosen.parts if part.name.endswith("weight")} == {
        "conv1.weight": "named by model.dense",
        "conv2.weight": "",
        "fc1.weight": "",
        "fc2.weight": "not named by model.prunable",
    }


def test_what_will_change_is_noted() -> None:
    # A fifth, and a twentieth, of 250 + 5,000 + 256,000 + 500 = 261,750.
    assert anatomy(method="grasp").notes == ("grasp keeps 52,350 of the 261,750 prunable weights after round 0",)
    growing = anatomy(method="sprout", sparsity__level=0.95, sprout__end=500)
    assert growing.notes == ("sprout has 13,088 of the 261,750 prunable weights from round 500 on",)
    assert anatomy().notes == anatomy(method="prunefl").notes == ()


def test_a_run_begins_with_what_was_shown() -> None:
    images, labels = torch.randn(40, 1, 28, 28), torch.arange(40) % 10
    data = Dataset.from_arrays((images, labels), (images, labels), name="made-up")
    clients = {"partition": "iid", "clients": 2, "classes_per_client": 1, "images_per_class": 5}
    config = configure(
        rounds=1, data=clients, cohort={"size": 2}, readjust={"alpha": 0.0}, local={"epochs": 1}, engine={"workers": 1}
    )
    row, shown = run(config, data=data).rows[-1], anatomy_of(config)
    assert row.forward_flops_dense == shown.forward_flops_dense == 2 * 2_020_500
    assert row.forward_flops_sparse == shown.forward_flops_sparse
    assert row.density_all == pytest.approx(shown.kept / shown.size)


class Tied(nn.Module):
    """An embedding whose weights the output layer shares, and an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(9, 6), nn.LSTM(6, 6, batch_first=True)
        self.output = nn.Linear(6, 9)
        self.output.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.output(self.lstm(self.embed(x))[0][:, -1])
        return scores


@pytest.fixture
def tokens() -> Dataset:
    """The last of five tokens is the class."""
    words = torch.randint(9, (90, 5), generator=torch.Generator().manual_seed(0))
    return Dataset.from_arrays((words, words[:, -1]), (words, words[:, -1]), name="tokens")


OWN: dict[str, Any] = {
    "rounds": 2,
    "data": {"partition": "iid", "clients": 4, "classes_per_client": 1, "images_per_class": 20},
    "cohort": {"size": 4},
    "readjust": {"every": 1, "alpha": 0.2},
    "local": {"epochs": 1},
    "engine": {"workers": 1},
    "model": {"prunable": ("Embedding", "LSTM")},
}


def test_a_module_of_ones_own_is_described(tokens: Dataset) -> None:
    """54 weights in the embedding and 144 in each matrix of the LSTM: 80 % of 342 are left out."""
    found = describe_model(configure(**OWN), model=Tied, data=tokens)
    lines = repr(found).splitlines()
    assert lines[0] == "Tied, as feddst begins with it (seed 0): inputs 5, 9 classes (tokens)"
    rows = {line.split()[0]: line for line in lines}
    assert rows["embed.weight"].endswith("yes: named by model.prunable; shared with output.weight")
    assert rows["lstm.weight_hh_l0"].endswith("yes: named by model.prunable, 4 matrices in one")
    assert found.budget == sum(part.kept for part in found.parts if part.why) == 68
    assert lines[-2] == "engine: reference"
    assert "Tied is not among the layers that the kernels know" in lines[-1]
    federation = federate(configure(**OWN).data, 0, tokens)
    assert repr(describe_model(configure(**OWN), model=Tied, data=federation)) == repr(found)
    assert "<td" in found._repr_html_()


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's, of vmap
@pytest.mark.parametrize("kind", ["reference", "stacked"])
def test_shared_weights_train_sparse_and_stay_shared(tokens: Dataset, kind: str) -> None:
    config = configure(**{**OWN, "engine": {"kind": kind, "workers": 1}})
    result = run(config, model=Tied, data=tokens)
    model = result.model
    assert isinstance(model, Tied)
    assert model.output.weight is model.embed.weight
    assert list(result.masks) == ["embed.weight", "lstm.weight_ih_l0", "lstm.weight_hh_l0"]
    assert not model.embed.weight[~result.masks["embed.weight"]].any()
    described = describe_model(config, model=Tied, data=tokens)
    assert described.engine == kind
    assert result.rows[-1].forward_flops_dense == described.forward_flops_dense
    assert sum(int(mask.sum()) for mask in result.masks.values()) == described.budget


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 3), nn.Linear(4, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return torch.cat([self.left(left), self.right(right)])[: len(left)]


def test_a_pair_is_data_and_all_inputs_are_named() -> None:
    answers = torch.arange(3)
    some = {"left": torch.rand(3, 6), "right": torch.rand(3, 4)}
    assert "inputs left 6 and right 4, 3 classes" in str(describe_model(model=Both, data=((some, answers),) * 2))
    ordered = tuple(some.values())
    assert "inputs 6 and 4, 3 classes" in str(describe_model(model=Both, data=((ordered, answers),) * 2))
