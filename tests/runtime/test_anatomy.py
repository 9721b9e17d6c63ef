"""What a network consists of, on the paper's networks with numbers worked out by hand."""

from typing import Any

import pytest
import torch

from feddst import configure, run
from feddst.data import Dataset
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
    monkeypatch.setattr("feddst.data.sizes.load", None)  # no images are needed
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
