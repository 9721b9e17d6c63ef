"""FedDST on Flower: a strategy for its servers, an app for its clients, and a grid that needs no network.

Names are imported when they are asked for: Flower's command line looks into this package, and so does
every client process.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feddst.flower.client import client_app
    from feddst.flower.config import FlowerConfig
    from feddst.flower.inprocess import InProcessGrid
    from feddst.flower.strategy import Strategy

__all__ = ["FlowerConfig", "InProcessGrid", "Strategy", "client_app"]

_HOMES = {"FlowerConfig": "config", "InProcessGrid": "inprocess", "Strategy": "strategy", "client_app": "client"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
