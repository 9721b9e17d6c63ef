"""FedLab's cross-process mode: a server, and for each core a process with one thread that trains its share of clients.

Timed: from the moment when the server samples a round's clients until it has averaged their weights: sending, all
training, receiving and averaging. Start-up and the first round are not in it. Clients train with the same few lines
as in `torch_processes`, tuned or not, in the place that FedLab has for them.
"""

import logging
import socket
import time

import torch
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.client.manager import PassiveClientManager
from fedlab.core.network import DistNetwork
from fedlab.core.server.manager import SynchronousServerManager
from fedlab.utils import Aggregators
from torch import Tensor, multiprocessing

from .job import Client, Job, read_job, write_report

HOST = "127.0.0.1"


class Server(SyncServerHandler):
    """FedLab's synchronous server with a clock, and with means weighted by images."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.network(), global_round=1 + job.rounds, sample_ratio=1.0)
        self.seconds: list[float] = []
        self._began = 0.0

    def sample_clients(self) -> list[int]:
        self._began = time.perf_counter()
        chosen: list[int] = super().sample_clients()
        return chosen

    def global_update(self, buffer: list[list[Tensor]]) -> None:
        weights, images = [update[0] for update in buffer], [update[1] for update in buffer]
        self.set_model(Aggregators.fedavg_aggregate(weights, torch.cat(images)))
        self.seconds.append(time.perf_counter() - self._began)


class Clients(FedDataset):
    """All clients' images, kept in memory; a loader is not needed for them."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.num = len(job.clients)
        self._clients = [job.client(number) for number in range(self.num)]

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Client:
        return self._clients[id]


class Trainer(SGDSerialClientTrainer):
    """Trains this process's share of the clients one after another."""

    def __init__(self, job: Job, clients: int) -> None:
        super().__init__(job.trainee(), clients)
        self._job = job
        self.batch_size = job.training.batch
        self.setup_dataset(Clients(job))

    def train(self, model_parameters: Tensor, train_loader: Client) -> list[Tensor]:
        self.set_model(model_parameters)
        self._job.train(self._model, train_loader)
        weights = torch.cat([value.detach().reshape(-1) for value in self._model.parameters()])
        return [weights, torch.tensor([float(len(train_loader[1]))])]


def main(path: str, report: str) -> None:
    """Carry out the job at `path` and write its report."""
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    job, port = read_job(path), free_port()
    context = multiprocessing.get_context("spawn")
    ranks = range(1, job.workers + 1)
    workers = [context.Process(target=plan, args=(path, port, rank), daemon=True) for rank in ranks]
    for worker in workers:
        worker.start()
    server = Server(job)
    SynchronousServerManager(network(job, port, 0), server, mode="GLOBAL").run()
    for worker in workers:
        worker.join()
    write_report(report, job, server.model, server.seconds[1:])


def plan(path: str, port: int, rank: int) -> None:
    """The life of a process that trains."""
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    job = read_job(path)
    share = len(job.clients[rank - 1 :: job.workers])
    PassiveClientManager(network(job, port, rank), Trainer(job, share)).run()


def network(job: Job, port: int, rank: int) -> DistNetwork:
    """The processes as FedLab connects them, over loopback only."""
    return DistNetwork((HOST, str(port)), world_size=1 + job.workers, rank=rank, ethernet="lo")


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
