"""Whether a run's network and data were built in or the user's own.

A run's directory does not say so, but its checkpoint has a digest of both, by which built-in ones are recognised.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from feddst.data import DataConfig, Federation, RemoteFederation
from feddst.errors import FeddstError
from feddst.export.inputs import Inputs, federation_here, inputs_from, named_inputs
from feddst.export.networks import difference, example, skeleton
from feddst.export.trained import Trained, trained_in
from feddst.models import ModelConfig, initial_model
from feddst.models.build import NETWORKS
from feddst.runtime.storage import identity_of

CHEAP = ("mnist",)
"""Data sets that come with the package: to compare with others takes too long for a report."""


@dataclass(frozen=True)
class Provenance:
    """For network and data, True: the user's own; False: built in; None: unknown.

    `own` says that one of them is the user's own, though perhaps not which: no command makes the run.
    """

    network: bool | None = None
    data: bool | None = None
    own: bool = False

    @property
    def unknown(self) -> bool:
        """Whether it is unknown if a command makes the run."""
        return not self.own and (self.network is None or self.data is None)


BUILT_IN = Provenance(network=False, data=False)


def provenance(path: Path) -> Provenance:
    """The provenance of the run in a directory."""
    try:
        trained = trained_in(path, say=False)
    except FeddstError:
        return Provenance()  # no checkpoint yet, or none that can be read
    config = trained.config
    federation = _federation(config.data, config.seed) if config.data.dataset in CHEAP else None
    inputs = named_inputs(config.data) if federation is None else inputs_from(federation.dataset, config.local)
    module = None if inputs is None else skeleton(config.model, inputs)
    if inputs is None or module is None or difference(module, trained.tensors):
        # The digest follows the order of the model's tensors, which only the model itself has.
        foreign = _foreign(trained)
        return Provenance(network=foreign, own=bool(foreign) or inputs is not None)
    model = initial_model(module)
    if federation is None or trained.identity == identity_of(model, _remote(inputs, config.data.clients)):
        return Provenance(network=False)  # the data are not here, or were on remote clients
    if trained.identity == identity_of(model, federation):
        return BUILT_IN
    return Provenance(network=False, data=True, own=True)


def whose_in_words(found: Provenance) -> str:
    """What is the user's own, as far as known."""
    if found.network:
        return "own network"
    return "own data" if found.network is False else "own network or data"


@lru_cache(maxsize=4)
def _federation(config: DataConfig, seed: int) -> Federation | None:
    return federation_here(config, seed)


def _remote(inputs: Inputs, clients: int) -> RemoteFederation:
    return RemoteFederation(example(inputs, 1), inputs.scores, clients)


def _foreign(trained: Trained) -> bool | None:
    """True if no built-in network has tensors of these names; else unknown, as shapes follow the data."""
    shapes = {name: value.dim() for name, value in trained.tensors.items()}
    return True if all(shapes != known for known in _built_in_names()) else None


_KINDS_OF_INPUTS = (((1, 28, 28), "float32"), ((3, 32, 32), "float32"), ((6, 128), "float32"), ((80,), "int64"))
"""Shapes and kinds of inputs, among which each built-in network finds what it takes."""


def _built_in_names() -> Iterator[dict[str, int]]:
    for name in NETWORKS:
        for shape, kind in _KINDS_OF_INPUTS:
            inputs = Inputs("", shape, kind, ("",) * 10)
            module = skeleton(ModelConfig(name=name), inputs)  # type: ignore[arg-type]
            if module is not None:
                yield {key: value.dim() for key, value in module.state_dict().items()}
