"""The words that methods, engines and the round loop speak to each other."""

from feddst.core.keys import generator
from feddst.core.minibatches import minibatches
from feddst.core.model import InitialModel, Layer
from feddst.core.plan import ClientWork, Growth, LocalTraining, Proximal, Readjustment, Report, Settling, Ticket
from feddst.core.sparse_sum import SparseSum
from feddst.core.state import Broadcast, ServerState
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
    "Broadcast",
    "ClientState",
    "ClientWork",
    "Growth",
    "InitialModel",
    "Key",
    "Layer",
    "LocalTraining",
    "Masks",
    "Place",
    "Positions",
    "Proximal",
    "Readjustment",
    "Report",
    "ServerState",
    "Settling",
    "SparseSum",
    "Stack",
    "Tensors",
    "Ticket",
    "Update",
    "as_bytes",
    "count_active",
    "count_kept",
    "generator",
    "masked",
    "minibatches",
    "packed",
    "positions_in",
    "positions_of",
    "unpacked",
]
