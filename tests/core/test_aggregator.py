"""What aggregators have in common, how they are chosen, and one of one's own in a run."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import feddst
from feddst.aggregators import TrimmedMean
from feddst.core import AGGREGATORS, Aggregator, AggregatorConfig, Masks, SparseSum, Tensors, Update, register
from feddst.data import Dataset
from feddst.errors import OptionError
from feddst.options import options_of
from feddst.runtime.loop import Silent


class Plain(Aggregator):
    """The plain mean of dense parameters, whatever clients' n_c are."""

    name = "plain"

    def __init__(self, masks: Masks, positions: object = None, *, count_holders: bool = False) -> None:
        super().__init__(masks, count_holders=count_holders)
        self._sums: dict[str, Tensor] = {}

    def add(self, update: Update) -> None:
        assert update.masks is None
        assert not self.masks
        self._take(update.params, update.weight, 1)

    def merge(self, other: "Plain") -> None:
        self._take(other._sums, other.weight, other.updates)

    def mean(self, group: str = "params", *, otherwise: Tensors | None = None) -> dict[str, Tensor]:
        return {name: value / self.updates for name, value in self._sums.items()} if group == "params" else {}

    def held(self) -> dict[str, Tensor]:
        return {}

    def votes(self) -> dict[str, Tensor]:
        return {}

    def _take(self, params: Tensors, weight: int, updates: int) -> None:
        self.weight += weight
        self.updates += updates
        self._sums = {name: self._sums.get(name, 0.0) + value for name, value in params.items()}


@pytest.fixture
def known() -> Iterator[type[Plain]]:
    """`Plain`, registered for a test."""
    yield register(Plain)
    del AGGREGATORS[Plain.name]


def test_the_mean_is_the_usual_one_and_needs_no_round_in_memory() -> None:
    assert AggregatorConfig() == AggregatorConfig(kind=SparseSum.name, trim=0.1)
    assert {kind.name: kind.streaming for kind in AGGREGATORS.values()} == {"mean": True, "trimmed-mean": False}
    assert dict(AGGREGATORS) == {"mean": SparseSum, "trimmed-mean": TrimmedMean}


@pytest.mark.parametrize("kind", AGGREGATORS)
def test_a_new_one_is_empty_and_knows_the_masks(kind: str) -> None:
    masks = {"w": torch.tensor([True, False])}
    total = AGGREGATORS[kind].begin(AggregatorConfig(kind=kind), masks)
    assert total.masks is masks
    assert (total.weight, total.updates, total.mean(), total.held(), total.apart()) == (0, 0, {}, {}, {})


@pytest.mark.parametrize("kind", AGGREGATORS)
def test_holders_are_counted_if_they_are_to_be(kind: str) -> None:
    masks = {"w": torch.tensor([True, False])}
    for count, apart in ((False, {}), (True, {"w": 1.0})):
        total = AGGREGATORS[kind].begin(AggregatorConfig(kind=kind), masks, count_holders=count)
        total.add(Update(0, 1, 1, {"w": torch.ones(1)}))
        total.add(Update(1, 1, 1, {"w": torch.ones(1)}, masks={"w": torch.tensor([False, True])}))
        assert total.apart() == apart


def test_one_that_does_not_say_how_much_masks_differ_says_nothing() -> None:
    assert Plain({}).apart() == {}


def test_options_choose_one_and_refuse_what_there_is_not() -> None:
    config = feddst.configure(aggregator={"kind": "trimmed-mean", "trim": 0.2})
    assert config.aggregator == AggregatorConfig("trimmed-mean", 0.2)
    config.check()
    with pytest.raises(OptionError, match=r"aggregator\.kind must be one of mean, .*did you mean 'trimmed-mean'"):
        feddst.configure(aggregator={"kind": "trimmed_mean"})
    for trim in (-0.1, 0.5):
        with pytest.raises(OptionError, match=rf"aggregator\.trim must be in \[0, 0\.5\), got {trim}"):
            feddst.configure(aggregator={"trim": trim})


@pytest.mark.usefixtures("known")
def test_one_of_ones_own_is_a_value_of_the_option() -> None:
    [kind] = [opt for opt in options_of(feddst.RunConfig) if opt.name == "aggregator.kind"]
    assert kind.choices == ("mean", "trimmed-mean", "plain")
    with pytest.raises(ValueError, match="an aggregator named plain is registered already: Plain"):
        register(Plain)


def test_what_cannot_add_up_is_refused() -> None:
    class Half(Aggregator):
        name = "half"

        def add(self, update: Update) -> None: ...

    for kind in (Half, Aggregator):
        with pytest.raises(TypeError, match="an aggregator must be a class that implements Aggregator"):
            register(kind)
    assert "half" not in AGGREGATORS


@pytest.mark.usefixtures("known")
def test_a_run_adds_up_with_the_one_that_it_names() -> None:
    """Two clients, of one image and of three: with the plain mean both count the same.

    Their images and weights are 0, so that the bias alone is trained: one step of lr 1 from equal scores moves the
    bias of each client's own class by a half up, and the other's down. The plain mean of ±0.5 and ∓0.5 is 0; by
    images it is (1·0.5 − 3·0.5)/4 = −0.25 for the first class.
    """
    blank = Dataset.from_arrays(train=(torch.zeros(4, 1, 1, 1), torch.tensor([0, 1, 1, 1])), test=_blank(2))
    pairs = [(torch.zeros(count, 1, 1, 1), torch.full((count,), which)) for which, count in enumerate((1, 3))]
    federation = feddst.Federation.from_clients(pairs, (blank.test_images, blank.test_labels))

    def network() -> nn.Sequential:
        layer = nn.Linear(1, 2)
        with torch.no_grad():
            layer.weight.zero_()
            layer.bias.zero_()
        return nn.Sequential(nn.Flatten(), layer)

    for kind, first in (("plain", 0.0), ("mean", -0.25)):
        config = feddst.configure(
            method="fedavg",
            rounds=1,
            cohort={"size": 2},
            local={"epochs": 1, "lr": 1.0, "l2": 0.0},
            engine={"kind": "reference", "workers": 1},
            aggregator={"kind": kind},
        )
        result = feddst.run(config, model=network(), data=federation, watcher=Silent())
        assert result.model.state_dict()["1.bias"].tolist() == [first, -first]


def _blank(count: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(count, 1, 1, 1), torch.arange(count)
