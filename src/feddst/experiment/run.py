"""One run in progress: its state, its totals, and the round it is in."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from torch import nn

from feddst.data import Federation
from feddst.engines import Assignment, Evaluation, Exam, Reply
from feddst.engines.ticket import held_out_images
from feddst.errors import CheckpointError, OptionError, TrainingError, WireError
from feddst.experiment.cohort import Participant, participants
from feddst.experiment.config import RunConfig, make_method, with_pins
from feddst.experiment.costs import Formula, Ledger, densities_of
from feddst.experiment.exams import Examiner, Scores
from feddst.experiment.metrics import GIB, Row, Summary, summarise
from feddst.experiment.storage import Checkpoint, RunDirectory, identity_of
from feddst.experiment.wording import counted
from feddst.models import check_fit, initial_model, multiply_adds
from feddst.models.timing import layer_times
from feddst.protocol import (
    ClientState,
    ClientWork,
    Masks,
    ServerState,
    SparseSum,
    Tensors,
    Update,
    count_active,
    count_kept,
)
from feddst.wire import (
    LARGEST_WEIGHT,
    Asked,
    Downlink,
    MaskHistory,
    Reference,
    check_size,
    decode_update,
    largest_update,
    mask_bytes,
    model_layout,
    nominal_bits,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Arrival:
    """What is kept of one reply until the round ends: all but the update, which is in the sum.

    `bits` by formula and `weight` are 0 if the update was refused.
    """

    client: int
    bytes: int
    mask_bytes: int
    bits: int
    weight: int
    loss: float | None
    state: ClientState


@dataclass
class OpenRound:
    """A round between its broadcast and its end; `densities` of the masks sent, `arrivals` by place in the round."""

    number: int
    downlink: Downlink
    assignments: list[Assignment]
    total: SparseSum
    densities: Mapping[str, float]
    began: float
    arrivals: dict[int, Arrival] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)

    def in_order(self) -> list[Arrival]:
        """What has arrived, in the order of places."""
        return [arrival for _, arrival in sorted(self.arrivals.items())]


class Run:
    """Goes through rounds as the loop tells it: `open_round`, `receive`, `close_round`, `record`.

    `stopped_by` is `rounds` or `cap` once the run has come to its end, else empty.
    """

    def __init__(
        self, config: RunConfig, federation: Federation, module: nn.Module, directory: RunDirectory | None = None
    ) -> None:
        config = with_pins(config)
        model = initial_model(module, prunable=config.model.prunable, dense=config.model.dense)
        self.config = config
        self.federation = federation
        self.method = make_method(config)
        example = federation.dataset.inputs(federation.dataset.test_images[:1])
        check_fit(module, example, federation.dataset.num_classes)
        costs = partial(layer_times, module, example, config.local.batch, model.layers)
        self.state = self.method.init(replace(model, layer_times=costs), config.seed)
        self.clients: dict[int, ClientState] = {}
        self.rows: list[Row] = []
        self.directory = directory
        self._first_round = self.state.round
        self._prunable = {layer.name: layer.size for layer in model.layers}
        check_size(model_layout(model.params, model.buffers))
        formula: Formula = "published" if config.accounting == "published" else "paper"
        up, down = nominal_bits(config.wire.values), nominal_bits(config.wire.download)
        self._ledger = Ledger(formula, self._prunable, multiply_adds(module, example), up, down)
        self._examiner = Examiner(self.method, federation, config.seed, config.personal_images)
        self._identity = identity_of(model, federation) if directory is not None else ""
        self._history = MaskHistory(config.wire.remember)
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
            self._history.restore(saved.bitmaps, saved.holders)
        done = self.state.round - 1
        self.rows = self.directory.rows(done)
        if [row.round for row in self.rows] != list(range(self._first_round, done + 1)):
            raise CheckpointError(f"{self.directory.metrics} does not have every round up to the checkpoint's, {done}")
        self.stopped_by = self._why_stop()
        if self.rows and not self.stopped_by and not self._scheduled(done):
            # The run once ended here, and was evaluated only for that.
            self.rows[-1] = self.rows[-1].unevaluated()
        self.directory.rewrite(self.rows)

    def open_round(self) -> list[Assignment]:
        """Broadcast, and the assignments of the round's clients."""
        began = time.perf_counter()
        sent = self.method.broadcast(self.state)
        try:
            downlink = Downlink(sent, self.config.wire, self._history, self.state.seed)
        except WireError as error:
            raise TrainingError(f"the model cannot be sent in round {self.state.round}: {error}") from None
        reference = downlink.reference
        price = self._ledger.download_price(reference)
        assignments: list[Assignment] = []
        for who in self._participants():
            parcel = downlink.parcel_for(who.client)
            self._ledger.down.add(len(parcel.payload), mask_bytes(parcel.payload))
            self._ledger.book_download(who.client, price)
            if who.work is not None:
                inputs, labels = self.federation.client_data(who.client)
                kept = self.clients.get(who.client, ClientState())
                initial = _initial(self.state) if who.work.keep or who.work.ticket is not None else {}
                assignments.append(
                    Assignment(
                        who.client, self.state.seed, parcel, who.work, inputs, labels, kept, self.config.wire, initial
                    )
                )
        masks = reference.broadcast.masks
        total = SparseSum(masks, reference.positions)
        self._open = OpenRound(self.state.round, downlink, assignments, total, densities_of(masks), began)
        return assignments

    def receive(self, place: int, reply: Reply) -> None:
        """Take in one client's reply, in whatever order replies come."""
        assert self._open is not None
        given = self._open.assignments[place]
        sent = self._open.downlink.reference
        densities, loss = self._open.densities, reply.loss if given.work.train else None
        try:
            update = self._read(reply.payload, given)
        except WireError as error:
            log.warning("round %d: the update of client %d was refused: %s", self._open.number, given.client, error)
            self._open.refusals.append(f"client {given.client}'s because {error}")
            self._history.forget(given.client)
            arrival = Arrival(given.client, len(reply.payload), 0, 0, 0, loss, reply.state)
        else:
            if given.work.ticket is not None and update.masks is not None:
                densities = densities_of(update.masks)
            sizes = len(reply.payload), mask_bytes(reply.payload)
            bits = self._ledger.upload_price(sent, update)
            arrival = Arrival(given.client, *sizes, bits, update.weight, loss, reply.state)
        self._ledger.charge_training(given.work, densities, _images(given))
        self._open.arrivals[place] = arrival

    def close_round(self) -> bool:
        """Book what came, in the order of places, and aggregate. Returns whether the new model is to be evaluated."""
        assert self._open is not None
        for arrival in self._open.in_order():
            self._ledger.up.add(arrival.bytes, arrival.mask_bytes)
            if arrival.weight:
                self._ledger.book_upload(arrival.client, arrival.bits)
            if arrival.state.tensors:
                self.clients[arrival.client] = arrival.state
        before, total = self.state, self._open.total
        self.state = self.method.aggregate(before, total) if self._enough(self._open) else before.next()
        self._moved = _movement(before.masks, self.state.masks)
        self._ledger.close_round(
            mask_moved=any(self._moved) or before.masks.keys() != self.state.masks.keys(),
            scheduled_evaluation=self._scheduled(before.round),
        )
        self.stopped_by = self._why_stop()
        return self._scheduled(before.round) or bool(self.stopped_by)

    def exams(self) -> list[Exam]:
        """What is to be tested now."""
        return self._examiner.exams(self.state, self.clients)

    def record(self, results: Sequence[Evaluation]) -> Row:
        """The round's row, with the results of its exams if there were any; a checkpoint where one is due."""
        assert self._open is not None
        row = self._row(self._examiner.scores(results, self.clients), self._open)
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
            bitmaps, holders = self._history.as_parts()
            checkpoint = Checkpoint(self.state, self.clients, self._ledger.as_dict(), bitmaps, holders)
            self.directory.save(checkpoint, self._identity)

    def summary(self) -> Summary:
        """The run so far in a few numbers."""
        return summarise(self.rows, self.stopped_by or "interruption")

    def _scheduled(self, round: int) -> bool:
        return round % self.config.eval_every == 0

    def _participants(self) -> list[Participant]:
        return participants(self.method, self.state, self.config.cohort, self.federation.num_clients)

    def _read(self, payload: bytes, given: Assignment) -> Update:
        """The update in a payload, added to the round's sum."""
        assert self._open is not None
        downlink = self._open.downlink
        most = given.work.local.weight(_images(given))
        asked = Asked(downlink.reference, given.work, given.client, most, self.config.wire)
        update = decode_update(payload, asked)
        try:
            self._open.total.add(downlink.unrounded(update))
        except TrainingError as error:
            raise TrainingError(f"client {given.client} diverged in round {self.state.round}: {error}") from None
        return update

    def _enough(self, ended: OpenRound) -> bool:
        """Whether there are updates enough to average. Raises if there would be, had none been refused."""
        updates, least = ended.total.updates, self.config.min_clients if ended.number else 1
        if updates >= least:
            return True
        found = f"round {ended.number} has {counted(updates, 'update')}, fewer than min_clients ({least})"
        if ended.refusals and updates + len(ended.refusals) >= least:
            raise TrainingError(f"{found}; refused: {'; '.join(ended.refusals)}")
        log.warning("%s: the model stays as it is", found)
        return False

    def _next_upload(self) -> int:
        """The most bits that the round about to begin can upload, as `accounting` counts them."""
        reference = Reference(self.method.broadcast(self.state))
        return sum(
            self._upload_bound(reference, who.client, who.work) for who in self._participants() if who.work is not None
        )

    def _upload_bound(self, reference: Reference, client: int, work: ClientWork) -> int:
        if self.config.accounting == "measured":
            return 8 * largest_update(Asked(reference, work, client, LARGEST_WEIGHT), self.config.wire)
        return self._ledger.upload_bound(reference, work)

    def _uploaded(self) -> int:
        """Bits uploaded so far, as `accounting` counts them."""
        return 8 * self._ledger.up.total if self.config.accounting == "measured" else self._ledger.upload_bits

    def _why_stop(self) -> str:
        """Why no other round is played, if that is so: the rounds are done, or one more might pass the cap."""
        if self.config.rounds and self.state.round > self.config.rounds:
            return "rounds"
        cap = self.config.cap_gib * GIB
        return "cap" if cap and self._uploaded() + self._next_upload() > cap else ""

    def _row(self, scores: Scores, ended: OpenRound) -> Row:
        active, size = count_active(self.state.masks), sum(self._prunable.values())
        return Row(
            round=ended.number,
            accuracy=scores.accuracy,
            accuracy_worst=scores.worst,
            accuracy_global=scores.overall,
            accuracy_personal=scores.personal,
            loss=scores.loss,
            train_loss=_mean_loss(ended.in_order()),
            density=sum(active.get(name, n) for name, n in self._prunable.items()) / size if size else 1.0,
            entered=self._moved[0],
            left=self._moved[1],
            clients=ended.total.updates,
            refused=len(ended.refusals),
            upload_bytes=self._ledger.up.total,
            upload_mask_bytes=self._ledger.up.masks,
            download_bytes=self._ledger.down.total,
            download_mask_bytes=self._ledger.down.masks,
            upload_bits=self._ledger.upload_bits,
            download_bits=self._ledger.download_bits,
            flops_dense=self._ledger.flops_dense,
            flops_sparse=self._ledger.flops_sparse,
            seconds=time.perf_counter() - ended.began,
        )


def _movement(before: Masks, after: Masks) -> tuple[int, int]:
    """How many weights entered the mask, and how many left it."""
    entered = sum(count_kept(after[name] & ~before[name]) for name in after if name in before)
    left = sum(count_kept(before[name] & ~after[name]) for name in after if name in before)
    return entered, left


def _mean_loss(arrivals: Sequence[Arrival]) -> float | None:
    """The mean over clients by weight; None if nobody trained."""
    trained = [(arrival.loss, arrival.weight) for arrival in arrivals if arrival.loss is not None]
    weight = sum(weight for _, weight in trained)
    return sum(loss * weight for loss, weight in trained) / weight if weight else None


def _images(given: Assignment) -> int:
    """How many images a client trains on, or takes its reports over."""
    ticket, images = given.work.ticket, len(given.labels)
    return images if ticket is None else images - held_out_images(images, ticket.held_out)


def _initial(state: ServerState) -> Tensors:
    """The weights that clients begin with where they have none: from the state, so that a resumed run has the same.

    A method whose server moves those weights keeps the initial ones as `initial/…` beside them.
    """
    return {name: state.extra.get(f"initial/{name}", value) for name, value in state.params.items()}
