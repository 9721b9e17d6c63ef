"""The words that methods, engines and the round loop speak to each other."""

from feddst.protocol.accumulator import SparseSum
from feddst.protocol.keys import generator
from feddst.protocol.minibatches import minibatches
from feddst.protocol.model import InitialModel, Layer
from feddst.protocol.state import Broadcast, ServerState
from feddst.protocol.tensors import (
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
from feddst.protocol.update import ClientState, Key, Place, Stack, Update
from feddst.protocol.work import ClientWork, Growth, LocalTraining, Proximal, Readjustment, Report, Settling, Ticket

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
