"""What is said of a sparse network before it is trained."""

from collections.abc import Callable

import pytest
from torch import Tensor, nn

from feddst.data import Dataset
from feddst.runtime import RunConfig, run

Configure = Callable[..., RunConfig]


class Patches(nn.Module):
    """12 × 300 weights of an embedding's kind, which stay dense, and 60 that may be pruned."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(300, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.words((x.flatten(1) * 10).long().clamp(0, 299)).mean(1))
        return found


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("feddst.runtime")]


def test_a_network_that_stays_mostly_dense_is_named_with_the_remedy(
    small_config: Configure, small_data: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    run(small_config(rounds=1), model=Patches, data=small_data)
    # 3,600 of an embedding and 4 biases, of 3,652 in all.
    assert warnings_of(caplog) == [
        "98.7 % of the 3,652 weights and biases stay dense, whatever sparsity.level is (words.weight, head.bias): "
        "model.prunable says which may be pruned ('*': all but vectors and norms)"
    ]


def test_the_remedy_helps(small_config: Configure, small_data: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    result = run(small_config(rounds=1, model__prunable=("*",)), model=Patches, data=small_data)
    assert warnings_of(caplog) == []
    assert result.rows[-1].density_all == pytest.approx(0.2, abs=0.01)


def test_a_dense_method_says_nothing(
    small_config: Configure, small_data: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    result = run(small_config(method="fedavg", rounds=1), model=Patches, data=small_data)
    assert warnings_of(caplog) == []
    assert result.rows[-1].density_all == result.summary.density_all == 1.0


def chain() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 40), nn.Linear(40, 4), nn.Linear(4, 4))


@pytest.mark.parametrize("method", ["feddst", "lotteryfl", "snip"])
def test_layers_without_a_weight_are_named_with_the_remedy(
    method: str, small_config: Configure, small_data: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 16 weights in the last layer 1 in 50 is none, of 160 and 1,440 it is 3 and 29."""
    changes = {"sparsity__level": 0.98, **({"oneshot__scope": "layer"} if method == "snip" else {})}
    if method != "snip":
        changes["sparsity__distribution"] = "uniform"
    run(small_config(method=method, rounds=1, **changes), model=chain, data=small_data)
    assert warnings_of(caplog) == [
        "no weight is left in 1 layer of 3 (3.weight), so that what the network gives may not depend on its input: "
        "lower sparsity.level, set sparsity.distribution to even, or name layers in model.dense"
    ]


def test_what_is_resumed_is_not_told_again(
    small_config: Configure, small_data: Dataset, caplog: pytest.LogCaptureFixture, tmp_path: object
) -> None:
    config = {"sparsity__level": 0.98, "sparsity__distribution": "uniform"}
    run(small_config(rounds=1, **config), model=chain, data=small_data, out=f"{tmp_path}/run")
    run(small_config(rounds=2, **config), model=chain, data=small_data, out=f"{tmp_path}/run", resume=True)
    assert len(warnings_of(caplog)) == 1
