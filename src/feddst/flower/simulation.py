"""A whole federation on this machine: on a grid in this process, or under Flower's simulation."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from feddst.data import Federation, federate
from feddst.errors import FlowerError, OptionError
from feddst.flower.app import worker_of
from feddst.flower.client import app_of
from feddst.flower.config import FlowerConfig
from feddst.flower.inprocess import InProcessGrid
from feddst.flower.memory import keeps_state
from feddst.flower.strategy import Strategy
from feddst.runtime.config import RunConfig
from feddst.runtime.loop import Watcher

Backend = Literal["in-process", "ray"]
CLIENTS = "clients"
"""The folder in a run's directory for what clients on this machine store."""


def simulate(
    config: RunConfig,
    flower: FlowerConfig,
    *,
    backend: Backend = "in-process",
    out: Path | None = None,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> None:
    """Run a config with as many nodes as it has clients."""
    federation = federate(config.data, config.seed)
    strategy = Strategy(config, data=federation, flower=flower, out=out, resume=resume, watcher=watcher)
    if backend == "ray":
        if resume and keeps_state(config):
            raise OptionError(
                f"backend must be in-process to go on with {config.method}: under Ray clients keep nothing"
            )
        _under_ray(lambda grid: strategy.start(grid), config, federation)
    else:
        worker = worker_of(config, federation)
        own = {"state-dir": str(out / CLIENTS)} if out is not None and keeps_state(config) else {}
        strategy.start(InProcessGrid(app_of(lambda context: worker), config.data.clients, node_config=own))


def _under_ray(start: Callable[[Grid], object], config: RunConfig, federation: Federation) -> None:
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    try:
        import ray  # noqa: F401
        from flwr.simulation import run_simulation
    except ImportError:
        raise FlowerError("Flower's simulation needs Ray: pip install 'flwr[simulation]'") from None
    failures: list[BaseException] = []

    def main(grid: Grid, context: Context) -> None:
        try:
            start(grid)
        except BaseException as error:
            failures.append(error)
            raise

    server_app = ServerApp()
    server_app.main()(main)
    worker = worker_of(config, federation)
    run_simulation(server_app, app_of(lambda context: worker), config.data.clients)
    if failures:
        raise failures[0]
