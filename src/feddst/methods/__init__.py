"""The methods, each a small file that reads like its paper."""

from feddst.methods.base import Method
from feddst.methods.fedavg import FedAvg, FedAvgM, FedAvgMServer, ServerMomentum
from feddst.methods.feddst import FedDST, FedDSTProx
from feddst.methods.fedprox import FedProx
from feddst.methods.randommask import RandomMask

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (FedAvg, FedAvgM, FedAvgMServer, FedProx, RandomMask, FedDST, FedDSTProx)
}
"""Every method by the name a user types."""

__all__ = [
    "METHODS",
    "FedAvg",
    "FedAvgM",
    "FedAvgMServer",
    "FedDST",
    "FedDSTProx",
    "FedProx",
    "Method",
    "RandomMask",
    "ServerMomentum",
]
