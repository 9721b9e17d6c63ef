"""The built-in network that a run's options name, for its data."""

import torch

from feddst.core import objective_of
from feddst.core.batches import tensors_of
from feddst.data import Dataset
from feddst.models import ModuleSource, network, network_name
from feddst.runtime.config import RunConfig


def built_in(config: RunConfig, dataset: Dataset) -> ModuleSource:
    """The network that a config names, for data like these."""
    sizes = sizes_for(config, dataset)
    return lambda: network(config.model, *sizes)


def built_in_name(config: RunConfig, dataset: Dataset) -> str:
    """The name of that network."""
    return network_name(config.model, *sizes_for(config, dataset))


def sizes_for(config: RunConfig, dataset: Dataset) -> tuple[tuple[int, ...], int, torch.dtype]:
    """The shape of an input, how many numbers the network has to give, and what an input consists of."""
    objective, targets = objective_of(config.local), dataset.train.some_targets
    objective.check_targets(targets, dataset.num_classes)
    example, outputs = tensors_of(dataset.example())[0], objective.outputs_for(targets, dataset.num_classes)
    return tuple(example.shape[1:]), outputs, example.dtype
