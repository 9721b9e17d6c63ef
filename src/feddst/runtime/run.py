"""One run in progress: its state, its totals, and the round it is in."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from feddst.core import (
    AGGREGATORS,
    ClientPlan,
    ClientState,
    Metric,
    Objective,
    ServerState,
    Tensors,
    count_active,
    generator,
    objective_of,
)
from feddst.core.metric import plain
from feddst.core.model import Densities
from feddst.data import Federation, RemoteFederation
from feddst.engines import EvalTask, Evaluation
from feddst.engines.times import layer_times
from feddst.errors import DamageError, OptionError
from feddst.models import check_fit, initial_model, multiply_adds
from feddst.models.norms import check_batch
from feddst.models.spatial import input_grids
from feddst.runtime.broadcasts import Broadcasts
from feddst.runtime.cohort import participants
from feddst.runtime.config import RunConfig, make_method, with_pins
from feddst.runtime.costs import Formula, Ledger
from feddst.runtime.detail_log import DetailLog, digest_of
from feddst.runtime.details import Detail, unevaluated
from feddst.runtime.ema import with_average
from feddst.runtime.evaluation import Evaluator, chosen
from feddst.runtime.metrics import GIB, Row, Summary, summarise
from feddst.runtime.recovery import Recovery, why_unused
from feddst.runtime.rounds import NAMED, Round
from feddst.runtime.rows import row_of
from feddst.runtime.storage import Checkpoint, RunDirectory, identity_of
from feddst.runtime.warnings import emptied
from feddst.runtime.wording import counted
from feddst.wire import (
    ClientTask,
    MaskFacts,
    MaskHistory,
    Message,
    Reference,
    check_size,
    largest_update,
    model_layout,
    nominal_bits,
)

log = logging.getLogger(__name__)

AUDIT_EVERY = 50
"""An engine that counts bytes instead of writing them does both in one of this many rounds, drawn at random."""


class Run:
    """Plays rounds as the loop calls it: `open_round`, then `close_round` and `record`.

    In between, the open `round` takes in the results of its tasks.

    A failed round leaves the model as it was, or as it last could be trained, and does not count. Several in a row end
    the run. The first ends it if there is nothing to go back to, unless clients are `untrusted`: on machines of their
    own, they may do better the next time. `spare` clients are asked in each round beyond those that are needed.

    `stopped_by` is `rounds` or `cap` once the run has come to its end, else empty.
    """

    def __init__(
        self,
        config: RunConfig,
        federation: Federation | RemoteFederation,
        module: nn.Module,
        directory: RunDirectory | None = None,
        *,
        untrusted: bool = False,
        spare: int = 0,
    ) -> None:
        config = with_pins(config)
        model = initial_model(module, prunable=config.model.prunable, dense=config.model.dense)
        self.config = config
        self.federation = federation
        self.method = make_method(config)
        example = federation.example
        objective = objective_of(config.local)
        _check_task(module, federation, objective)
        check_batch(module, example, config.local.batch)
        costs = partial(layer_times, config.engine, module, example, config.local.batch, model.layers)
        self.state = self.method.init(replace(model, layer_times=costs), config.seed)
        self.clients: dict[int, ClientState] = {}
        self.rows: list[Row] = []
        self.directory = directory
        self._untrusted = untrusted
        size = config.cohort.size + spare
        if config.cohort.sampling == "without-replacement":
            size = min(size, federation.num_clients)
        self._cohort = replace(config.cohort, size=size)
        self.spare = size - config.cohort.size
        self._first_round = self.state.round
        self._prunable = {layer.name: layer.size for layer in model.layers}
        check_size(model_layout(model.params, model.buffers))
        formula: Formula = "published" if config.accounting == "published" else "paper"
        up, down = nominal_bits(config.wire.values), nominal_bits(config.wire.download)
        self._ledger = Ledger(formula, self._prunable, multiply_adds(module, example), up, down)
        self._evaluator = Evaluator(
            self.method,
            federation,
            config.seed,
            config.personal_images,
            chosen(objective.metrics, config.metric),
        )
        self._identity, self._detail_log = "", None
        if directory is not None:
            self._identity = identity_of(model, federation)
            grids = input_grids(module, example)
            self._detail_log = DetailLog(self._prunable, grids, self._first_round, config.eval_every)
        self._history = MaskHistory(config.wire.remember)
        self._round: Round | None = None
        self._sent: Broadcasts | None = None
        self._known: list[MaskFacts] = []
        self._coming: tuple[ServerState, list[tuple[int, ClientPlan | None]]] | None = None
        self._recovery = Recovery()
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

    @property
    def metrics(self) -> Sequence[Metric]:
        """What models are judged by; the run goes by the first."""
        return self._evaluator.metrics

    @property
    def metric(self) -> Metric:
        """What the run goes by, as it is written down."""
        return plain(self._evaluator.metric)

    @property
    def densities(self) -> Densities:
        """How dense the global model is now."""
        return self._densities(self._active())

    def place(self, device: torch.device) -> None:
        """Move the state to a device, if it is not there."""
        self.state = self.state.to(device)

    def resume(self) -> None:
        """Go back to the last checkpoint, to the one before it if a file is damaged, else to the beginning."""
        assert self.directory is not None
        found = self.directory.checkpoints()
        damage: DamageError | None = None
        for path in found or [self.directory.checkpoint]:
            try:
                saved, rows, details = self._stored(path)
            except DamageError as error:
                damage = damage or error
                continue
            if found and path != self.directory.checkpoint:
                log.warning(
                    "%s; going on from the checkpoint before it", damage or f"{self.directory.checkpoint} is missing"
                )
                self.directory.go_back()
            return self._go_on_from(saved, rows, details)
        raise DamageError(f"{damage}; {self.directory.way_back()}")

    def _stored(self, path: Path) -> tuple[Checkpoint | None, list[Row], list[Detail]]:
        """A checkpoint, and the rows and details up to it; raises if any of it is missing or damaged."""
        assert self.directory is not None
        saved = self.directory.load(self._identity, path)
        done = self._first_round - 1 if saved is None else saved.state.round - 1
        rows, details = self.directory.rows(done), self.directory.details(done)
        if [row.round for row in rows] != list(range(self._first_round, done + 1)):
            raise DamageError(f"{self.directory.metrics} does not have every round up to the checkpoint's, {done}")
        if saved is not None and saved.told not in (None, digest_of(details, self.config.eval_every)):
            raise DamageError(f"{self.directory.details_file} does not have all details up to the checkpoint's, {done}")
        return saved, rows, details

    def _go_on_from(self, saved: Checkpoint | None, rows: list[Row], details: list[Detail]) -> None:
        assert self.directory is not None
        assert self._detail_log is not None
        if saved is not None:
            self.state = saved.state
            self.clients = dict(saved.clients)
            self._ledger.restore(saved.ledger)
            self._history.restore(saved.bitmaps, saved.holders)
            if saved.told is None:
                log.warning(
                    "%s was begun before there were checksums: damage to it cannot be seen", self.directory.path
                )
        self.rows = rows
        self._recovery = Recovery() if saved is None else _recovered(saved, patient=self._untrusted)
        done = self.state.round - 1
        self.stopped_by = self._why_stop()
        if self.rows and not self.stopped_by and not self._scheduled(done):
            # The run once ended here, and was evaluated only for that.
            self.rows[-1] = self.rows[-1].unevaluated()
            details = unevaluated(details, done)
        self._detail_log.go_on_after(details)
        self.directory.rewrite(self.rows, details)

    def open_round(self) -> Sequence[ClientTask]:
        """Begin a round; returns its tasks."""
        began, broadcasts, tasks = time.perf_counter(), self._broadcasts(), list[ClientTask]()
        initial: Tensors = {}
        for client, plan in self._participants():
            if plan is None and self._untrusted:
                continue  # nothing is sent to it
            message = broadcasts.encoder(client).message_for(client)
            if plan is None:
                self._book_sent(client, message)
                continue
            initial = initial or self._initial(plan)
            tasks.append(
                ClientTask(
                    client=client,
                    seed=self.state.seed,
                    plan=plan,
                    message=message,
                    data=self.federation.data_of(client),
                    state=self._kept_by(client),
                    wire=self.config.wire,
                    initial=initial,
                )
            )
        options = self.config.aggregator
        begin_sum = partial(AGGREGATORS[options.kind].begin, options, count_holders=self.directory is not None)
        self._round = Round(self.state, tasks, self._history, begin_sum, began)
        return tasks

    @property
    def round(self) -> Round:
        """The round that is open."""
        assert self._round is not None
        return self._round

    def receive_late(self, size: int) -> None:
        """Count an answer that came after its round had ended; it is not used."""
        self.round.late += 1
        self._ledger.up.add_unused(size)

    def forget_holders(self) -> None:
        """Assume that no client still has the masks that it was sent before."""
        self._history.restore({}, {})

    def close_round(self) -> bool:
        """Book the results, in the order of places, and aggregate. Returns whether the new model is to be evaluated."""
        ended = self.round
        ended.open = False
        for client in ended.missing():
            self._history.forget(client)
        if (unnamed := len(ended.refusals) - NAMED) > 0:
            log.warning("round %d: refused besides: %s", ended.number, counted(unnamed, "update"))
        least = self.config.min_clients if ended.number else 1
        why = why_unused(ended, least)
        ended.used = not why
        self._book(ended)
        before = ended.before
        if why:
            self.state = self._recovery.after(why, ended, before, patient=self._untrusted)
        else:
            self._recovery.note_use(before)
            after = self.method.aggregate(before, ended.total)
            self.state = with_average(before, after, self.config.ema)
        if not before.round and (line := emptied(self.state)):
            log.warning("%s", line)
        ended.note_movement(self.state.masks)
        if not ended.mask_moved:
            self.state = replace(self.state, masks=before.masks)  # their facts need not be computed again
        self._ledger.close_round(mask_moved=ended.mask_moved, scheduled_evaluation=self._scheduled(before.round))
        self.stopped_by = self._why_stop()
        return self._evaluation_due(before.round)

    def eval_tasks(self) -> list[EvalTask]:
        """The models to evaluate now."""
        return self._evaluator.tasks(self.state, self.clients)

    def record(self, results: Sequence[Evaluation]) -> Row:
        """The round's row, with the results of its evaluation if there was one; writes a checkpoint if one is due."""
        ended, self._round = self.round, None
        self._forget_sent()
        scores, active = self._evaluator.scores(results, self.clients), self._active()
        densities, forward = self._densities(active), self._ledger.forward(active)
        row = row_of(
            ended, scores, self._evaluator.metric, self._ledger, densities=densities, forward=forward, spare=self.spare
        )
        self.rows.append(row)
        if self.directory is not None and self._detail_log is not None:
            due = self._evaluation_due(row.round)
            self.directory.append(
                row,
                self._detail_log.append(
                    ended, self.state.masks, active, scores.each, self._evaluator.metric, evaluation_due=due
                ),
            )
            if row.round % self.config.checkpoint_every == 0 or self.stopped_by:
                self.save()
            if self.stopped_by:
                self.directory.finish(self.summary())
        return row

    def save(self) -> None:
        """Write a checkpoint of the state between rounds."""
        if self.directory is not None and self._detail_log is not None:
            ledger, (bitmaps, holders) = self._ledger.as_dict(), self._history.as_parts()
            checkpoint = Checkpoint(self.state, self.clients, ledger, bitmaps, holders, self._detail_log.digest)
            checkpoint = replace(checkpoint, **vars(self._recovery))
            self.directory.save(checkpoint, self._identity)

    def summary(self) -> Summary:
        """The run so far in a few numbers."""
        return summarise(self.rows, self.stopped_by or "interruption")

    def _broadcasts(self) -> Broadcasts:
        """What is sent in the round that begins with the present state."""
        self._forget_sent()
        if self._sent is None:
            wire, audited = self.config.wire, self._audited()
            self._sent = Broadcasts(self.method, self.state, wire, self._history, self._known, audited=audited)
        return self._sent

    def _forget_sent(self) -> None:
        """Keep of what an earlier round sent only what follows from its masks: the messages may be large."""
        if self._sent is not None and self._sent.state is not self.state:
            self._known, self._sent = self._sent.facts, None

    def _book(self, ended: Round) -> None:
        """Note what was sent and received, in the order of places, and what clients keep from now on."""
        unasked = {id(task) for task, _ in ended.unasked()}
        for task in ended.tasks:
            if id(task) not in unasked:
                self._book_sent(task.client, task.message)
        for task, result in ended.answers():
            self._ledger.book_result(task, result)
            self._keep(task.client, result.state, used=ended.used and result.weight > 0)

    def _book_sent(self, client: int, message: Message) -> None:
        masks = message.reference.broadcast.masks
        own_masks = any(mask is not self.state.masks.get(name) for name, mask in masks.items())
        self._ledger.book_sent(client, message.sizes, message.reference, own_masks=own_masks)

    def _kept_by(self, client: int) -> ClientState:
        """What a client has kept from the rounds before."""
        return self.clients.get(client, ClientState())

    def _keep(self, client: int, kept: ClientState, *, used: bool) -> None:
        """Note what a client keeps from now on. If its update is not used, its feedback is what it was before."""
        if kept.feedback and not used:
            kept = replace(kept, feedback=self._kept_by(client).feedback)
        if not kept.empty:
            self.clients[client] = kept

    def _initial(self, plan: ClientPlan) -> Tensors:
        """The weights that clients begin with where they have none: from the state, so that a resumed run has the same.

        A method whose server moves those weights keeps the initial ones as `initial/…` beside them.
        """
        if not plan.needs_initial:
            return {}
        return {name: self.state.extra.get(f"initial/{name}", value) for name, value in self.state.params.items()}

    def _audited(self) -> bool:
        if self.config.wire.packing == "deflate":
            return True  # the size of deflated values is known only when they are written
        block, place = divmod(self.state.round, AUDIT_EVERY)
        return int(generator(self.state.seed, "audit", block).integers(AUDIT_EVERY)) == place

    def _scheduled(self, round: int) -> bool:
        return round % self.config.eval_every == 0

    def _evaluation_due(self, round: int) -> bool:
        return self._scheduled(round) or bool(self.stopped_by)

    def _participants(self) -> list[tuple[int, ClientPlan | None]]:
        """Who takes part in the round about to begin, worked out once."""
        if self._coming is None or self._coming[0] is not self.state:
            found = participants(self.method, self.state, self._cohort, self.federation.num_clients, self.config.rounds)
            self._coming = self.state, found
        return self._coming[1]

    def _next_upload(self) -> int:
        """The most bits that the round about to begin can upload, as `accounting` counts them."""
        broadcasts, total = self._broadcasts(), 0
        last: tuple[Reference, ClientPlan, int] | None = None
        for client, plan in self._participants():
            if plan is not None:
                reference = broadcasts.reference(client)
                if last is None or last[0] is not reference or last[1] != plan:
                    last = reference, plan, self._upload_bound(reference, client, plan)
                total += last[2]
        return total

    def _upload_bound(self, reference: Reference, client: int, plan: ClientPlan) -> int:
        if self.config.accounting == "measured":
            task = ClientTask(client, self.state.seed, plan, Message().read_as(reference), wire=self.config.wire)
            return 8 * largest_update(task)
        return self._ledger.upload_bound(reference, plan)

    def _uploaded(self) -> int:
        """Bits uploaded so far, as `accounting` counts them."""
        return 8 * self._ledger.up.total if self.config.accounting == "measured" else self._ledger.upload_bits

    def _why_stop(self) -> str:
        """Why no other round is played: the rounds are done, or one more might pass the cap. Empty if one is."""
        if self.config.rounds and self._recovery.counted >= self.config.rounds:
            return "rounds"
        cap = self.config.cap_gib * GIB
        return "cap" if cap and self._uploaded() + self._next_upload() > cap else ""

    def _active(self) -> Mapping[str, int]:
        """How many weights of each masked layer are active."""
        masks = self.state.masks
        return next((facts.active for facts in self._known if facts.masks is masks), None) or count_active(masks)

    def _densities(self, active: Mapping[str, int]) -> Densities:
        size = sum(self._prunable.values())
        kept = sum(active.get(name, n) for name, n in self._prunable.items())
        whole = sum(value.numel() for value in self.state.params.values())
        return Densities(kept / size if size else 1.0, 1 - (size - kept) / whole if whole else 1.0)


def _check_task(module: nn.Module, federation: Federation | RemoteFederation, objective: Objective) -> None:
    """Raise unless the data's targets are the objective's, and the network's outputs fit them."""
    if isinstance(federation, RemoteFederation):
        check_fit(module, federation.example, federation.targets, objective, federation.num_classes)
        return
    dataset = federation.dataset
    found = [records.some_targets for records in (dataset.train, dataset.test)]
    for targets in found:
        objective.check_targets(targets, dataset.num_classes)
    two = dataset.test.read(np.arange(2) % len(dataset.test))
    check_fit(module, two.inputs, two.targets, objective, dataset.num_classes or max(map(objective.classes_in, found)))


def _recovered(saved: Checkpoint, *, patient: bool) -> Recovery:
    """The recovery that a checkpoint holds; a `patient` run counts failed rounds anew."""
    counted = saved.state.round - 1 if saved.counted is None else saved.counted
    return Recovery(saved.sound, counted, 0 if patient else saved.in_vain)
