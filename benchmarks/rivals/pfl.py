"""pfl-research's simulation of `FederatedAveraging`: a process with one thread for each core, started by torchrun.

Timed: from one end of a central iteration to the next, as its callbacks see them: sampling, all training, the sum over
processes and the central optimiser's step. Start-up and the first iteration, the only one with an evaluation, are not
in it. Local training is pfl-research's own loop, which goes through a client's images in the same order every epoch.
Where processes do not divide clients evenly, its sampler takes some clients twice and others not at all.
"""

import os
import subprocess
import sys
import time
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from .job import Job, read_job, write_report

NEVER = 1_000_000


class Task(nn.Module):
    """A network with the two methods that pfl-research asks for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.network(inputs), labels)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Weighted]:
        loss = F.cross_entropy(self.network(inputs), labels, reduction="sum").item()
        return {"loss": Weighted(loss, len(labels))}


class Clock(TrainingProcessCallback):
    """Notes when iterations end."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.ends.append(time.perf_counter())
        return False, Metrics()


def main(path: str, report: str) -> None:
    """Carry out the job at `path` and write its report: in this process under torchrun, else in those it starts."""
    job = read_job(path)
    if "TORCHELASTIC_RUN_ID" in os.environ or job.workers == 1:
        simulate(job, report)
        return
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.workers}"]
    loopback = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [*torchrun, "--module", "rivals", "pfl", path, report]
    sys.exit(subprocess.run(command, env=os.environ | loopback).returncode)


def simulate(job: Job, report: str) -> None:
    """This process's part of the simulation; the first one writes the report."""
    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002 - pfl-research's processes agree on users by this
    task, clock = Task(job.trainee()), Clock()
    training, fused = job.training, job.tuned or None
    model = PyTorchModel(
        task,
        partial(torch.optim.SGD, momentum=training.momentum, weight_decay=training.weight_decay, fused=fused),
        torch.optim.SGD(task.parameters(), lr=1.0),
    )
    users = {number: PyTorchTensorDataset(job.client(number)) for number in range(len(job.clients))}
    data = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=1 + job.rounds,
            evaluation_frequency=NEVER,
            train_cohort_size=len(users),
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=training.epochs,
            local_learning_rate=training.lr,
            local_batch_size=training.batch,
        ),
        callbacks=[clock],
    )
    if os.environ.get("RANK", "0") == "0":
        seconds = [after - before for before, after in zip(clock.ends, clock.ends[1:], strict=False)]
        write_report(report, job, task.network, seconds)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
