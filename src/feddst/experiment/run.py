"""One run in progress: its state, its totals, and the round it is in."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from feddst.data import Federation
from feddst.engines import Evaluation, Job, Outcome
from feddst.errors import CheckpointError, OptionError, TrainingError
from feddst.experiment.cohort import Participant, participants
from feddst.experiment.config import RunConfig, make_method
from feddst.experiment.costs import Ledger
from feddst.experiment.metrics import GIB, Row, Summary, client_accuracies, summarise, worst_tenth
from feddst.experiment.storage import Checkpoint, RunDirectory, identity_of
from feddst.models import check_fit, initial_model, multiply_adds
from feddst.protocol import Broadcast, ClientState, Masks, SparseSum, count_active


@dataclass(frozen=True)
class Arrival:
    """What is kept of one job's outcome until the round ends: all but the update, which is in the sum."""

    client: int
    bits: int
    weight: int
    loss: float
    state: ClientState


@dataclass
class OpenRound:
    """A round between its broadcast and its end; `arrivals` by the job's place in the round."""

    broadcast: Broadcast
    jobs: list[Job]
    total: SparseSum
    arrivals: dict[int, Arrival]
    began: float


class Run:
    """Goes through rounds as the loop tells it: `open_round`, `receive`, `close_round`, `record`.

    `stopped_by` is `rounds` or `cap` once the run has come to its end, else empty.
    """

    def __init__(
        self, config: RunConfig, federation: Federation, module: nn.Module, directory: RunDirectory | None = None
    ) -> None:
        model = initial_model(module, prunable=config.model.prunable, dense=config.model.dense)
        self.config = config
        self.federation = federation
        self.method = make_method(config)
        self.state = self.method.init(model, config.seed)
        self.clients: dict[int, ClientState] = {}
        self.rows: list[Row] = []
        self.directory = directory
        self._first_round = self.state.round
        self._prunable = {layer.name: layer.size for layer in model.layers}
        example = federation.dataset.inputs(federation.dataset.test_images[:1])
        check_fit(module, example, federation.dataset.num_classes)
        self._ledger = Ledger(config.accounting, self._prunable, multiply_adds(module, example))
        self._identity = identity_of(model, federation) if directory is not None else ""
        self._open: OpenRound | None = None
        self._moved = (0, 0)
        self.stopped_by = self._why_stop()
        if self.stopped_by:
            least = self._next_upload() / GIB
            raise OptionError(
                f"cap_gib must be at least {least:.4g}, one round of {config.method}, got {config.cap_gib}"
            )

    @property
    def name(self) -> str:
        """How this run is called on screen."""
        return f"{self.config.method}, seed {self.config.seed}"

    def resume(self) -> None:
        """Go back to the last checkpoint, or to the beginning if there is none."""
        assert self.directory is not None
        saved = self.directory.load(self._identity)
        if saved is not None:
            self.state = saved.state
            self.clients = dict(saved.clients)
            self._ledger.restore(saved.ledger)
        done = self.state.round - 1
        self.rows = self.directory.rows(done)
        if [row.round for row in self.rows] != list(range(self._first_round, done + 1)):
            raise CheckpointError(f"{self.directory.metrics} does not have every round up to the checkpoint's, {done}")
        self.stopped_by = self._why_stop()
        if self.rows and not self.stopped_by and not self._scheduled(done):
            # The run once ended here, and was evaluated only for that.
            self.rows[-1] = self.rows[-1].unevaluated()
        self.directory.rewrite(self.rows)

    def open_round(self) -> list[Job]:
        """Broadcast, and the jobs of the round's clients."""
        began = time.perf_counter()
        sent = self.method.broadcast(self.state)
        jobs: list[Job] = []
        for who in self._participants():
            self._ledger.book_download(who.client, sent)
            if who.work is not None:
                inputs, labels = self.federation.client_data(who.client)
                kept = self.clients.get(who.client, ClientState())
                jobs.append(Job(who.client, self.state.seed, sent, who.work, inputs, labels, kept))
        self._open = OpenRound(sent, jobs, SparseSum(sent.masks), {}, began)
        return jobs

    def receive(self, place: int, outcome: Outcome) -> None:
        """Take in one job's outcome, in whatever order outcomes come."""
        assert self._open is not None
        update, job, sent = outcome.update, self._open.jobs[place], self._open.broadcast
        try:
            self._open.total.add(update)
        except TrainingError as error:
            raise TrainingError(f"client {update.client} diverged in round {self.state.round}: {error}") from None
        bits = self._ledger.upload_price(sent, update)
        self._open.arrivals[place] = Arrival(update.client, bits, update.weight, outcome.loss, outcome.state)
        self._ledger.charge_training(job.work, sent.masks, len(job.labels))

    def close_round(self) -> bool:
        """Book what came, in the order of jobs, and aggregate. Returns whether the new model is to be evaluated."""
        assert self._open is not None
        for _, arrival in sorted(self._open.arrivals.items()):
            self._ledger.book_upload(arrival.client, arrival.bits)
            if arrival.state.tensors:
                self.clients[arrival.client] = arrival.state
        before, total = self.state, self._open.total
        self.state = self.method.aggregate(before, total) if total.updates else before.next()
        self._moved = _movement(before.masks, self.state.masks)
        self._ledger.close_round(
            mask_moved=any(self._moved) or before.masks.keys() != self.state.masks.keys(),
            scheduled_evaluation=self._scheduled(before.round),
        )
        self.stopped_by = self._why_stop()
        return self._scheduled(before.round) or bool(self.stopped_by)

    def record(self, evaluation: Evaluation | None) -> Row:
        """The round's row, written down, with a checkpoint where one is due."""
        assert self._open is not None
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

    def _scheduled(self, round: int) -> bool:
        return round % self.config.eval_every == 0

    def _participants(self) -> list[Participant]:
        return participants(self.method, self.state, self.config.cohort, self.federation.num_clients)

    def _next_upload(self) -> int:
        """The most bits that the round about to begin can upload."""
        sent = self.method.broadcast(self.state)
        asked = [who.work for who in self._participants() if who.work is not None]
        return sum(self._ledger.upload_bound(sent, work) for work in asked)

    def _why_stop(self) -> str:
        """Why no other round is played, if that is so: the rounds are done, or one more might pass the cap."""
        if self.config.rounds and self.state.round > self.config.rounds:
            return "rounds"
        cap = self.config.cap_gib * GIB
        return "cap" if cap and self._ledger.upload_bits + self._next_upload() > cap else ""

    def _row(self, evaluation: Evaluation | None, ended: OpenRound) -> Row:
        accuracy = worst = overall = None
        if evaluation is not None:
            correct = evaluation.correct.numpy()
            each = client_accuracies(correct, self.federation.partition.test)
            accuracy, worst, overall = float(each.mean()), worst_tenth(each), float(correct.mean())
        active, size = count_active(self.state.masks), sum(self._prunable.values())
        return Row(
            round=ended.broadcast.round,
            accuracy=accuracy,
            accuracy_worst=worst,
            accuracy_global=overall,
            loss=None if evaluation is None else evaluation.loss,
            train_loss=_mean_loss([arrival for _, arrival in sorted(ended.arrivals.items())]),
            density=sum(active.get(name, n) for name, n in self._prunable.items()) / size if size else 1.0,
            entered=self._moved[0],
            left=self._moved[1],
            clients=len(ended.arrivals),
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


def _mean_loss(arrivals: Sequence[Arrival]) -> float | None:
    """The mean over clients by weight."""
    weight = sum(arrival.weight for arrival in arrivals)
    return sum(arrival.loss * arrival.weight for arrival in arrivals) / weight if weight else None
