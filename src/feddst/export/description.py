"""The description in an exported file: JSON beside its tensors, so that it can be loaded without the run."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from feddst.core.metric import Metric
from feddst.errors import CheckpointError
from feddst.export.inputs import Inputs
from feddst.export.networks import INPUT_DTYPES
from feddst.models import ModelConfig
from feddst.models.build import NETWORKS
from feddst.runtime.metrics import ACCURACY, noted

FORMAT = 1
_MOST_DIMENSIONS = 8
_LARGEST_SIDE = 2**20


@dataclass(frozen=True)
class Description:
    """`network` and `inputs` are None for a model of the user's own; the rest is for a reader."""

    feddst: str
    method: str
    round: int
    sparsity: float
    scores: Mapping[str, float] = field(default_factory=dict)
    metric: Metric = ACCURACY
    client: int | None = None
    network: ModelConfig | None = None
    inputs: Inputs | None = None

    def text(self) -> str:
        """The description as JSON."""
        network = self.network and {"name": self.network.name, "head": self.network.head}
        inputs = self.inputs and {name: value for name, value in asdict(self.inputs).items() if _is_told(name, value)}
        own = {"feddst": self.feddst, "method": self.method, "round": self.round, "sparsity": self.sparsity}
        scores = {"accuracy" if self.metric == ACCURACY else "scores": dict(self.scores)}
        also = {**scores, "client": self.client, "network": network, "inputs": inputs}
        return json.dumps(noted({"format": FORMAT, **own, **also}, self.metric), ensure_ascii=False)


def _is_told(name: str, value: object) -> bool:
    """Whether a field of the inputs is written: those of models without classes, or with several inputs, are rare."""
    return name not in ("outputs", "several") or bool(value)


def read_network(text: str) -> tuple[ModelConfig, Inputs] | None:
    """The built-in network that a description names, and its inputs; None if it names none.

    Raises `CheckpointError` if anything that a network is built from is not as it should be.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise CheckpointError("its description is not JSON") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise CheckpointError(f"its description is not of format {FORMAT}, which this version reads")
    network, inputs = found.get("network"), found.get("inputs")
    if network is None or inputs is None:
        return None
    if not isinstance(network, dict) or not isinstance(inputs, dict):
        raise CheckpointError("its description does not say what network it is for")
    return _network(network), _inputs(inputs)


def _network(stored: dict[str, Any]) -> ModelConfig:
    name, head = stored.get("name"), stored.get("head")
    if not isinstance(name, str) or name not in NETWORKS or head not in ("logits", "softmax"):
        raise CheckpointError(f"its network is {name!r} with head {head!r}, which is not known here")
    return ModelConfig(name=cast(Any, name), head=head)


def _inputs(stored: dict[str, Any]) -> Inputs:
    shape, classes, dtype = stored.get("shape"), stored.get("classes"), stored.get("dtype")
    sides = isinstance(shape, list) and all(type(side) is int and 0 < side <= _LARGEST_SIDE for side in shape)
    if not sides or not 0 < len(cast(list[int], shape)) <= _MOST_DIMENSIONS:
        raise CheckpointError("its inputs have no sensible shape")
    outputs = stored.get("outputs", 0)
    if type(outputs) is not int or not 0 <= outputs <= _LARGEST_SIDE:
        raise CheckpointError("it gives no sensible number of outputs")
    if not isinstance(classes, list) or not (classes or outputs) or not all(isinstance(name, str) for name in classes):
        raise CheckpointError("its classes are not named")
    if dtype not in INPUT_DTYPES:
        raise CheckpointError(f"its inputs are of the unknown kind {dtype!r}")
    # How images are normalised is for the reader of a card: nothing here computes with it.
    return Inputs("", tuple(cast(list[int], shape)), dtype, tuple(classes), outputs=outputs)
