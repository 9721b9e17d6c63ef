"""How clients may step, each way in a file of its own, and how the learning rate may change over rounds."""

from feddst.clients.optimizers.adam import Adam
from feddst.clients.optimizers.schedules import Constant, Cosine
from feddst.clients.optimizers.sgd import SGD

__all__ = ["SGD", "Adam", "Constant", "Cosine"]
