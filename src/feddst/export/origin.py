"""Where a trained model comes from: a built-in network or the user's own, on which data.

A run holds its config, but not whether the user replaced its model or data with their own. A run directory also holds
a digest of both, by which built-in ones are recognised. For a run in memory, the last loss on the test images serves
the same purpose.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from feddst.core import OBJECTIVES
from feddst.data import Dataset, Federation, RemoteFederation, clients_of
from feddst.engines import EvalTask
from feddst.engines.reference import ReferenceEngine
from feddst.errors import CheckpointError
from feddst.export.inputs import Inputs, federation_here, inputs_from, named_inputs
from feddst.export.networks import difference, example, filled, own_module, resolved, skeleton
from feddst.export.trained import Trained
from feddst.models import ModelConfig, ModuleSource, initial_model
from feddst.objectives import MissingObjective
from feddst.runtime.storage import identity_of

_SAME_LOSS = 1e-3
"""Engines sum in different orders; other images make a difference far above this."""


@dataclass(frozen=True)
class Origin:
    """As far as known: `network` and `inputs` are None where they are the user's own and were not given.

    `division` says how the data were partitioned. `compared` is False if that is by the config alone. `module` has the
    trained tensors, None if it cannot be made here.
    """

    network: ModelConfig | None = None
    inputs: Inputs | None = None
    division: str = ""
    compared: bool = True
    own_data: bool = True
    module: nn.Module | None = None


def origin_of(trained: Trained, model: ModuleSource | None, data: Dataset | Federation | None) -> Origin:
    """A trained model's origin; `model` and `data` are what the run was given in Python, if anything."""
    own = None if model is None else filled(own_module(model), trained.tensors)
    federation = _federation(trained, data)
    inputs = (
        named_inputs(trained.config.data)
        if federation is None
        else inputs_from(federation.dataset, trained.config.local)
    )
    if inputs is None:
        return Origin(module=own)
    built_in = skeleton(trained.config.model, inputs)
    is_built_in = built_in is not None and not difference(built_in, trained.tensors)
    if own is not None and str(own) != str(built_in):
        is_built_in = False
    module = built_in if own is None and is_built_in else own
    if data is None and (module is None or not _known(trained, module, inputs, federation)):
        return Origin(module=own)
    if data is not None and module is not None and trained.identity:
        _refuse_other(trained, module, inputs, federation)
    return Origin(
        network=resolved(trained.config.model, inputs) if is_built_in else None,
        inputs=inputs,
        division=_division(trained, federation),
        compared=federation is not None,
        own_data=data is not None,
        module=None if module is None else filled(module, trained.tensors),
    )


def _federation(trained: Trained, data: Dataset | Federation | None) -> Federation | None:
    config = trained.config
    if data is not None:
        return clients_of(config.data, config.seed, data)
    return federation_here(config.data, config.seed)


def _known(trained: Trained, module: nn.Module, inputs: Inputs, federation: Federation | None) -> bool:
    """Whether the run's data are those that its config names; by their name, if they are not here to be compared."""
    if federation is None:
        return bool(trained.identity)
    if not trained.identity:
        return _has_the_same_loss(trained, filled(module, trained.tensors), federation.dataset)
    return trained.identity in _identities(trained, module, inputs, federation)


def _has_the_same_loss(trained: Trained, module: nn.Module, dataset: Dataset) -> bool:
    """Whether the model's mean loss on the test images is what the last round's evaluation found."""
    recorded = trained.rows[-1].loss if trained.rows else None
    local = trained.config.local
    if recorded is None or isinstance(OBJECTIVES[local.objective], MissingObjective):
        return False
    engine = ReferenceEngine(copy.deepcopy(module), dataset, torch.device("cpu"), local)
    found = engine.evaluate_one(EvalTask(trained.params, trained.buffers)).loss
    return abs(found - recorded) <= _SAME_LOSS * max(1.0, recorded)


def _refuse_other(trained: Trained, module: nn.Module, inputs: Inputs, federation: Federation | None) -> None:
    assert federation is not None
    if trained.identity not in _identities(trained, module, inputs, federation):
        raise CheckpointError("data must be what the run was given, divided the same way: its digest is another")


def _identities(trained: Trained, module: nn.Module, inputs: Inputs, federation: Federation) -> Iterator[str]:
    """The digests that a run of this model on these data has: with clients here, or on other machines."""
    model = initial_model(module)
    yield identity_of(model, federation)
    if not inputs.several:
        yield identity_of(model, RemoteFederation(example(inputs, 1), inputs.scores, trained.config.data.clients))


def _division(trained: Trained, federation: Federation | None) -> str:
    if federation is not None and federation.description:
        return federation.description
    data = trained.config.data
    count = data.clients if federation is None else federation.num_clients
    name = data.dataset if federation is None else federation.dataset.name
    return f"{name}, {count} clients, " + (f"{data.partition} partition" if federation is None else "split by the user")
