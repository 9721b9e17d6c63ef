"""The ready Flower app: its run config holds every option, and it needs nothing else."""

import json
from functools import lru_cache

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from feddst.data import Federation, federate
from feddst.data.adapters import Source
from feddst.errors import FlowerError
from feddst.flower.client import Worker, app_of
from feddst.flower.config import Value
from feddst.flower.memory import partition_of
from feddst.flower.settings import read_run_config
from feddst.flower.strategy import Strategy
from feddst.runtime.config import RunConfig
from feddst.runtime.session import built_in


def serve(grid: Grid, context: Context) -> None:
    """Run the server."""
    config, app = read_run_config(context.run_config)
    Strategy(config, flower=app.flower, out=app.out or None, resume=app.resume).start(grid)


def worker_for(context: Context) -> Worker:
    """The worker for a client; clients of one process with the same run config share it."""
    return _worker(json.dumps(context.run_config, sort_keys=True))


@lru_cache(maxsize=1)
def _worker(run_config: str) -> Worker:
    values: dict[str, Value] = json.loads(run_config)
    config, _ = read_run_config(values)
    return worker_of(config, federate(config.data, config.seed))


def worker_of(config: RunConfig, federation: Federation) -> Worker:
    """A worker for any client of a federation."""

    def examples(context: Context) -> Source:
        client = partition_of(context)
        if client >= federation.num_clients:
            raise FlowerError(f"partition-id must be below data.clients ({federation.num_clients}), got {client}")
        return federation.dataset.train.taken(federation.partition.train[client])

    return Worker(built_in(config, federation), examples, config.engine)


server_app = ServerApp()
server_app.main()(serve)

client_app = app_of(worker_for)
