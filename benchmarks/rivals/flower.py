"""Flower's simulation: a Ray actor with one CPU for each core, federated averaging as its `FedAvg` strategy has it.

Timed: from the moment when the strategy is asked to configure a round's training until it has averaged the replies.
That is sampling, sending, all training, receiving and averaging. Start-up, the first round and the empty evaluation
between rounds are not in it. Clients train with the same few lines as in `torch_processes`, tuned or not; an actor
keeps the network and all clients' images.
"""

import os
import time
from collections.abc import Iterable
from functools import lru_cache

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn

from .job import Job, read_job, write_report

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""No telemetry, no update checks, no installs."""


class TimedFedAvg(FedAvg):
    """Flower's own strategy with a clock."""

    def __init__(self) -> None:
        super().__init__(fraction_train=1.0, fraction_evaluate=0.0)
        self.seconds: list[float] = []
        self._began = 0.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._began = time.perf_counter()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.seconds.append(time.perf_counter() - self._began)
        return arrays, metrics


def main(path: str, report: str) -> None:
    """Carry out the job at `path` and write its report."""
    os.environ.update(QUIET)
    job, strategy, server = read_job(path), TimedFedAvg(), ServerApp()
    final: dict[str, Tensor] = {}

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        result = strategy.start(grid, ArrayRecord(job.network().state_dict()), num_rounds=1 + job.rounds)
        final.update(result.arrays.to_torch_state_dict())

    run_simulation(
        server,
        client_app(path),
        num_supernodes=len(job.clients),
        backend_config={
            "init_args": {"num_cpus": job.workers, "_node_ip_address": "127.0.0.1", "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    module = job.network()
    module.load_state_dict(final)
    write_report(report, job, module, strategy.seconds[1:])


def client_app(path: str) -> ClientApp:
    """What an actor does for a client."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        job, module = resident(path)
        client = job.client(int(context.node_config["partition-id"]))
        module.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        job.train(module, client)
        metrics = MetricRecord({"num-examples": len(client[1])})
        content = RecordDict({"arrays": ArrayRecord(module.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    return app


@lru_cache(maxsize=1)
def resident(path: str) -> tuple[Job, nn.Module]:
    """The job and its network, once a process."""
    torch.set_num_threads(1)
    job = read_job(path)
    return job, job.trainee()
