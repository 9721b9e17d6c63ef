"""Client optimizers, each in a file of its own, and schedules of the learning rate."""

from feddst.clients.optimizers.adagrad import Adagrad
from feddst.clients.optimizers.adam import Adam
from feddst.clients.optimizers.adamw import AdamW
from feddst.clients.optimizers.missing import MissingOptimizer
from feddst.clients.optimizers.rmsprop import RMSprop
from feddst.clients.optimizers.schedules import Constant, Cosine, Exponential, Linear, Step
from feddst.clients.optimizers.sgd import SGD
from feddst.clients.optimizers.torch_optim import Torch, optimizer_named

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Constant",
    "Cosine",
    "Exponential",
    "Linear",
    "MissingOptimizer",
    "RMSprop",
    "Step",
    "Torch",
    "optimizer_named",
]
