"""The types that methods, engines and the round loop share."""

from feddst.core.aggregator import AGGREGATORS, Aggregator, AggregatorConfig
from feddst.core.batches import Batch
from feddst.core.examples import ClientData, Examples
from feddst.core.keys import generator
from feddst.core.metric import Mean, Metric, Whole
from feddst.core.minibatches import minibatches
from feddst.core.model import InitialModel, Layer
from feddst.core.objective import OBJECTIVES, Objective, Reduction, objective_of
from feddst.core.optimizer import OPTIMIZERS, SCHEDULES, ClientOptimizer, LocalOptimizer, Schedule, Stepper
from feddst.core.plan import ClientPlan, LocalTraining
from feddst.core.registry import Registry, register
from feddst.core.sparse_sum import SparseSum
from feddst.core.state import Broadcast, ServerState
from feddst.core.step import ClientStep, MaskBounds
from feddst.core.tensors import (
    Masks,
    Positions,
    Tensors,
    as_bytes,
    count_active,
    count_kept,
    masked,
    packed,
    positions_in,
    positions_of,
    unpacked,
)
from feddst.core.update import ClientState, Key, Place, Stack, Update

__all__ = [
    "AGGREGATORS",
    "OBJECTIVES",
    "OPTIMIZERS",
    "SCHEDULES",
    "Aggregator",
    "AggregatorConfig",
    "Batch",
    "Broadcast",
    "ClientData",
    "ClientOptimizer",
    "ClientPlan",
    "ClientState",
    "ClientStep",
    "Examples",
    "InitialModel",
    "Key",
    "Layer",
    "LocalOptimizer",
    "LocalTraining",
    "MaskBounds",
    "Masks",
    "Mean",
    "Metric",
    "Objective",
    "Place",
    "Positions",
    "Reduction",
    "Registry",
    "Schedule",
    "ServerState",
    "SparseSum",
    "Stack",
    "Stepper",
    "Tensors",
    "Update",
    "Whole",
    "as_bytes",
    "count_active",
    "count_kept",
    "generator",
    "masked",
    "minibatches",
    "objective_of",
    "packed",
    "positions_in",
    "positions_of",
    "register",
    "unpacked",
]
