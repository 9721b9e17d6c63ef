"""The methods, each a small file that reads like its paper."""

from feddst.methods.base import Method
from feddst.methods.fedavg import FedAvg, FedAvgM, FedAvgMServer, ServerMomentum
from feddst.methods.feddst import FedDST, FedDSTProx, RandomMaskProx
from feddst.methods.fedopt import Adaptive, FedAdagrad, FedAdam, FedDSTAdagrad, FedDSTAdam, FedDSTYogi, FedYogi
from feddst.methods.fedprox import FedProx
from feddst.methods.lgfedavg import LGFedAvg, SharedLayers
from feddst.methods.lotteryfl import Lottery, LotteryFL
from feddst.methods.oneshot import SNIP, GraSP, OneShot
from feddst.methods.prunefl import PruneFL, Reconfiguration
from feddst.methods.randommask import RandomMask
from feddst.methods.signsgd import SignSGD, Votes

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        FedAvg,
        FedAvgM,
        FedAvgMServer,
        FedProx,
        FedAdagrad,
        FedAdam,
        FedYogi,
        RandomMask,
        RandomMaskProx,
        SNIP,
        GraSP,
        PruneFL,
        FedDST,
        FedDSTProx,
        FedDSTAdagrad,
        FedDSTAdam,
        FedDSTYogi,
        LotteryFL,
        LGFedAvg,
        SignSGD,
    )
}
"""Every method by the name a user types."""

__all__ = [
    "METHODS",
    "SNIP",
    "Adaptive",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedAvgMServer",
    "FedDST",
    "FedDSTAdagrad",
    "FedDSTAdam",
    "FedDSTProx",
    "FedDSTYogi",
    "FedProx",
    "FedYogi",
    "GraSP",
    "LGFedAvg",
    "Lottery",
    "LotteryFL",
    "Method",
    "OneShot",
    "PruneFL",
    "RandomMask",
    "RandomMaskProx",
    "Reconfiguration",
    "ServerMomentum",
    "SharedLayers",
    "SignSGD",
    "Votes",
]
