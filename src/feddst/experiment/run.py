"""One run in progress: its state, its totals, and the round it is in."""

import time
from dataclasses import dataclass

from torch import nn

from feddst.data import Federation
from feddst.engines import Evaluation, Job, Outcome
from feddst.errors import TrainingError
from feddst.experiment.cohort import participants
from feddst.experiment.config import RunConfig, make_method
from feddst.experiment.costs import Ledger
from feddst.experiment.metrics import GIB, Row, Summary, client_accuracies, summarise, worst_tenth
from feddst.experiment.storage import Checkpoint, RunDirectory, identity_of
from feddst.models import initial_model, multiply_adds
from feddst.protocol import Broadcast, ClientState, Masks, SparseSum


@dataclass
class OpenRound:
    """A round between its broadcast and its end."""

    broadcast: Broadcast
    jobs: list[Job]
    total: SparseSum
    losses: dict[int, tuple[float, int]]
    began: float


class Run:
    """Goes through rounds as the loop tells it: `open_round`, `receive`, `close_round`, `record`."""

    def __init__(
        self,
        config: RunConfig,
        federation: Federation,
        module: nn.Module,
        directory: RunDirectory | None = None,
    ) -> None:
        model = initial_model(module, prunable=config.model.prunable, dense=config.model.dense)
        self.config = config
        self.federation = federation
        self.method = make_method(config)
        self.state = self.method.init(model, config.seed)
        self.clients: dict[int, ClientState] = {}
        self.rows: list[Row] = []
        self.directory = directory
        self._prunable = {layer.name: layer.size for layer in model.layers}
        example = federation.dataset.inputs(federation.dataset.test_images[:1])
        self._ledger = Ledger(config.accounting, self._prunable, multiply_adds(module, example))
        self._identity = identity_of(model, federation.dataset) if directory is not None else ""
        self._open: OpenRound | None = None
        self._moved = (0, 0)

    @property
    def name(self) -> str:
        """How this run is called on screen."""
        return f"{self.config.method}, seed {self.config.seed}"

    @property
    def stopped_by(self) -> str:
        """`rounds` or `cap` once the run has come to its end, else nothing."""
        if not self.rows:
            return ""
        before = self.rows[-2].upload_bits if len(self.rows) > 1 else 0
        return self._end(self.rows[-1].round, self.rows[-1].upload_bits, before)

    def resume(self) -> None:
        """Go back to the last checkpoint, or to the beginning if there is none."""
        assert self.directory is not None
        saved = self.directory.load(self._identity)
        if saved is not None:
            self.state = saved.state
            self.clients = dict(saved.clients)
            self._ledger.restore(saved.ledger)
        self.rows = self.directory.rewind(self.state.round - 1)

    def open_round(self) -> list[Job]:
        """Broadcast, and the jobs of the round's clients."""
        began = time.perf_counter()
        sent = self.method.broadcast(self.state)
        jobs: list[Job] = []
        for who in participants(self.method, self.state, self.config.cohort, self.federation.num_clients):
            self._ledger.charge_download(sent)
            if who.work is not None:
                inputs, labels = self.federation.client_data(who.client)
                kept = self.clients.get(who.client, ClientState())
                jobs.append(Job(who.client, self.state.seed, sent, who.work, inputs, labels, kept))
        self._open = OpenRound(sent, jobs, SparseSum(sent.masks), {}, began)
        return jobs

    def receive(self, place: int, outcome: Outcome) -> None:
        """Take in one job's outcome, in whatever order outcomes come."""
        assert self._open is not None
        update, job = outcome.update, self._open.jobs[place]
        try:
            self._open.total.add(update)
        except TrainingError as error:
            raise TrainingError(f"client {update.client} diverged in round {self.state.round}: {error}") from None
        self._open.losses[place] = (update.loss, update.weight)
        self._ledger.charge_upload(self._open.broadcast, update)
        self._ledger.charge_training(job.work, self._open.broadcast.masks, len(job.labels))
        if outcome.state.tensors:
            self.clients[update.client] = outcome.state

    def close_round(self) -> bool:
        """Aggregate. Returns whether the new model is due for evaluation."""
        assert self._open is not None
        before, total = self.state, self._open.total
        self.state = self.method.aggregate(before, total) if total.updates else before.next()
        self._moved = _movement(before.masks, self.state.masks)
        uploaded = self.rows[-1].upload_bits if self.rows else 0
        last = self._end(before.round, self._ledger.upload_bits, uploaded)
        return before.round % self.config.eval_every == 0 or bool(last)

    def record(self, evaluation: Evaluation | None) -> Row:
        """The round's row, written down, with a checkpoint where one is due."""
        assert self._open is not None
        self._ledger.close_round(mask_moved=any(self._moved), evaluated=evaluation is not None)
        row = self._row(evaluation, self._open)
        self._open = None
        self.rows.append(row)
        if self.directory is not None:
            self.directory.append(row)
            if row.round % self.config.checkpoint_every == 0 or self.stopped_by:
                self.save()
            if self.stopped_by:
                self.directory.finish(self.summary())
        return row

    def save(self) -> None:
        """Write a checkpoint of the state between rounds."""
        if self.directory is not None:
            checkpoint = Checkpoint(self.state, self.clients, self._ledger.as_dict())
            self.directory.save(checkpoint, self._identity)

    def summary(self) -> Summary:
        """The run so far in a few numbers."""
        return summarise(self.rows, self.stopped_by or "interruption")

    def _end(self, ended: int, upload: int, upload_before: int) -> str:
        """Why round `ended` is the last, if it is: the rounds are done, or one more like it would pass the cap."""
        if self.config.rounds and ended >= self.config.rounds:
            return "rounds"
        cap = self.config.cap_gib * GIB
        return "cap" if cap and upload + (upload - upload_before) > cap else ""

    def _row(self, evaluation: Evaluation | None, ended: OpenRound) -> Row:
        accuracy = worst = overall = None
        if evaluation is not None:
            correct = evaluation.correct.numpy()
            each = client_accuracies(correct, self.federation.partition.test)
            accuracy, worst, overall = float(each.mean()), worst_tenth(each), float(correct.mean())
        active = {name: int(mask.sum()) for name, mask in self.state.masks.items()}
        size = sum(self._prunable.values())
        return Row(
            round=ended.broadcast.round,
            accuracy=accuracy,
            accuracy_worst=worst,
            accuracy_global=overall,
            loss=None if evaluation is None else evaluation.loss,
            train_loss=_mean_loss(ended.losses),
            density=sum(active.get(name, n) for name, n in self._prunable.items()) / size if size else 1.0,
            entered=self._moved[0],
            left=self._moved[1],
            clients=len(ended.losses),
            upload_bits=self._ledger.upload_bits,
            download_bits=self._ledger.download_bits,
            flops_dense=self._ledger.flops_dense,
            flops_sparse=self._ledger.flops_sparse,
            seconds=time.perf_counter() - ended.began,
        )


def _movement(before: Masks, after: Masks) -> tuple[int, int]:
    """How many weights entered the mask, and how many left it."""
    entered = sum(int((after[name] & ~before[name]).sum()) for name in after if name in before)
    left = sum(int((before[name] & ~after[name]).sum()) for name in after if name in before)
    return entered, left


def _mean_loss(losses: dict[int, tuple[float, int]]) -> float | None:
    """The mean over clients by weight, added up in the order of jobs so that arrival does not matter."""
    weight = sum(n for _, n in losses.values())
    return sum(losses[i][0] * losses[i][1] for i in sorted(losses)) / weight if weight else None
