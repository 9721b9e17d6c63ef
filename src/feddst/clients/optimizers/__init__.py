"""Local optimizers, each in a file of its own, and schedules of the learning rate over rounds."""

from feddst.clients.optimizers.adam import Adam
from feddst.clients.optimizers.schedules import Constant, Cosine
from feddst.clients.optimizers.sgd import SGD

__all__ = ["SGD", "Adam", "Constant", "Cosine"]
