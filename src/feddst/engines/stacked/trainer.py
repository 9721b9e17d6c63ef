"""A round of clients that sit side by side, from what they receive to what they hold at the end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from feddst.clients.client import diverged, refuse_diverged
from feddst.clients.reference import train_client
from feddst.clients.steps import LotteryPruning, Proximal, Readjust, Report
from feddst.clients.steps.readjust import drop, grow, growth_images, random_scores
from feddst.clients.steps.report import hessian_gradient, refuse_frozen, reported_batches, signs
from feddst.clients.task import Job
from feddst.core import LocalTraining, positions_of, unpacked
from feddst.core.keys import torch_seed
from feddst.core.minibatches import Indices, cuts
from feddst.engines.stacked.beginning import MaskRows, begin
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.lockstep import Lockstep, epoch_losses, in_lockstep
from feddst.engines.stacked.model_stack import Stage, Trainer
from feddst.engines.stacked.slots import Images, Seat
from feddst.engines.stacked.squares import StackedSquares
from feddst.errors import DivergenceError
from feddst.models import load
from feddst.wire import Reference

T = TypeVar("T")

SIDE_BY_SIDE = {Readjust, Proximal, LotteryPruning, Report}
"""What is carried out for all models at once; with other steps one client is trained after another."""


class Failures(dict[int, DivergenceError]):
    """Why clients, by their rows, send nothing; the others do."""

    def unless(self, row: int, attempt: Callable[[], T]) -> T | None:
        """What comes of an attempt for one of them; None if it has diverged."""
        try:
            return attempt()
        except DivergenceError as error:
            self.setdefault(row, error)
            return None


@dataclass(frozen=True)
class Trained:
    """Seats after their round, and their models in the same order.

    `changed` says whose masks are not those they were sent; `losses` are those of last epochs; `reports` hold what work
    asked for beside the weights, [M, width] each. `failures` are those who have diverged.
    """

    seats: Sequence[Seat]
    stage: Stage
    changed: Sequence[bool]
    losses: Sequence[float]
    reports: dict[str, Tensor]
    failures: Failures


class Classroom:
    """Where seats are trained: the module they are models of, the images, and a trainer."""

    def __init__(self, module: nn.Module, flat: Flat, images: Images, trainer: Trainer) -> None:
        self._module = module
        self._flat = flat
        self._images = images
        self._trainer = trainer
        self._mask_rows = MaskRows(flat, module, images.inputs.device)

    def train(self, seats: Sequence[Seat]) -> Trained:
        """Carry out the work of seats that are alike."""
        plan, failures = seats[0].plan, Failures()
        stage = self._trainer.stage(len(seats))
        asked, seats = seats, begin(seats, stage, self._flat, self._module, self._images, self._mask_rows)
        if any(type(step) not in SIDE_BY_SIDE for step in plan.steps):
            return self._one_by_one(stage, asked, seats, failures)
        before = stage.masks.clone() if plan.step(Readjust) is not None else None
        squares = StackedSquares.of(stage) if "squared-gradient" in plan.groups else None
        cuda = [stage.theta.device] if stage.theta.is_cuda else []
        with torch.random.fork_rng(devices=cuda):
            # What a module draws while it trains (dropout, say) follows from who sits here.
            torch.manual_seed(torch_seed(seats[0].seed, f"torch {seats[0].broadcast.round} {seats[0].client} stacked"))
            losses = self._learn(stage, seats, failures, squares) if plan.train else [0.0] * len(seats)
        self._refuse_diverged(stage, seats, failures)
        reports: dict[str, Tensor] = {
            report.kind: self._report(stage, seats, report, failures)
            for report in plan.steps
            if isinstance(report, Report) and report.kind != "squared-gradient"
        }
        if squares is not None:
            reports["squared-gradient"] = squares.mean()
        return Trained(seats, stage, self._changed(stage, seats, before), losses, reports, failures)

    def _one_by_one(self, stage: Stage, asked: Sequence[Seat], seats: Sequence[Seat], failures: Failures) -> Trained:
        """One after another, as the reference engine would; `seats` are those asked with the images they train on."""
        reports: dict[str, Tensor] = {group: torch.zeros_like(stage.theta) for group in seats[0].plan.groups}
        losses, changed = [0.0] * len(seats), [False] * len(seats)
        for row, seat in enumerate(asked):
            job = self._job(seat)
            outcome = failures.unless(row, partial(train_client, self._module, job))
            if outcome is None:
                continue
            update, losses[row], changed[row] = outcome.update, outcome.loss, outcome.update.masks is not None
            masks = job.broadcast.masks if update.masks is None else update.masks
            own = {name: outcome.state.tensors[name] for name in seat.plan.keep}
            self._flat.fill(stage.theta[row], {**unpacked(update.params, positions_of(masks), masks), **own})
            self._mask_rows.fill(stage.masks[row], masks)
            for name, value in update.buffers.items():
                stage.buffers[name][row] = value.to(stage.theta.device)
            for kind, rows in reports.items():
                self._flat.fill(rows[row], update.extra[kind])
        return Trained(seats, stage, changed, losses, reports, failures)

    def _job(self, seat: Seat) -> Job:
        """A seat's work with its images, and with the broadcast as clients receive it: on the CPU."""
        at = torch.from_numpy(seat.images).to(self._images.inputs.device)
        inputs, labels = self._images.inputs[at], self._images.labels[at]
        sent = Reference(seat.broadcast).on_cpu().broadcast
        return Job(seat.client, seat.seed, sent, seat.plan, inputs, labels, seat.state, seat.initial)

    def _learn(
        self, stage: Stage, seats: Sequence[Seat], failures: Failures, squares: StackedSquares | None
    ) -> list[float]:
        """All epochs, with the readjustment after its own; returns the last epochs' losses."""
        sequences, orders = [seat.sequence() for seat in seats], seats[0].plan.step(Readjust)
        if orders is None:
            return [losses[-1] for losses in self._epochs(stage, seats, sequences, failures, squares)]
        after = orders.epoch
        first = self._epochs(stage, seats, [sequence[:after] for sequence in sequences], failures, squares)
        # A straggler that stops before its time readjusts after its last epoch.
        ends = [sequence[min(after, len(sequence)) - 1] for sequence in sequences]
        pieces = [cuts(len(end), seats[0].plan.local.batch)[-1] for end in ends]
        self._readjust(stage, seats, orders, [end[piece] for end, piece in zip(ends, pieces, strict=True)])
        late = [sequence[after:] for sequence in sequences]
        second = self._epochs(stage, seats, late, failures, squares, done=after)
        return [(early + late)[-1] for early, late in zip(first, second, strict=True)]

    def _epochs(
        self,
        stage: Stage,
        seats: Sequence[Seat],
        sequences: Sequence[Indices],
        failures: Failures,
        squares: StackedSquares | None,
        done: int = 0,
    ) -> list[list[float]]:
        """Some epochs, after so many; returns each seat's mean loss in each of them."""
        local, proximal = seats[0].plan.local, seats[0].plan.step(Proximal)
        mu = 0.0 if proximal is None else proximal.pull
        steps = in_lockstep(sequences, local.batch)
        if not steps.steps:
            return [[] for _ in seats]
        losses = self._steps(stage, steps, local, mu, squares).double().cpu().numpy()
        found = epoch_losses(losses, steps.lengths, sequences)
        if not np.isfinite(losses).all():
            for row, (seat, each) in enumerate(zip(seats, found, strict=True)):
                for epoch, loss in enumerate(each, done + 1):
                    which = loss, epoch, seat.client, seat.broadcast.round, local.lr
                    failures.unless(row, partial(refuse_diverged, *which))
        return found

    def _steps(
        self, stage: Stage, steps: Lockstep, local: LocalTraining, mu: float, squares: StackedSquares | None
    ) -> Tensor:
        """What `Trainer.epochs` does, with the squared gradient of each step's minibatches gathered before it."""
        if squares is None:
            return self._trainer.epochs(stage, steps, local, mu)
        losses = []
        for one in steps.one_by_one():
            squares.add(self._trainer.mean_gradient(stage, one.minibatches()), one.lengths[0] > 0)
            losses.append(self._trainer.epochs(stage, one, local, mu))
        return torch.cat(losses)

    def _readjust(self, stage: Stage, seats: Sequence[Seat], orders: Readjust, last_batches: Sequence[Indices]) -> None:
        """Readjust the masks of everybody, those of one run together: they hold equally many weights."""

        def scores() -> Tensor:
            if orders.growth.rule == "random":
                return self._random_scores(stage, seats)
            if orders.growth.images == "last-batch":
                return self._trainer.mean_gradient(stage, last_batches).abs_()
            chosen = [seat.images[growth_images(len(seat.images), orders.growth, *seat.draw)] for seat in seats]
            return self._trainer.mean_gradient(stage, chosen).abs_()

        early = scores() if orders.growth.weights == "unpruned" else None
        kept: list[dict[str, Tensor]] = []
        runs = [_Rows(stage, self._flat, rows) for rows in _by_run(seats, stage.theta.device)]
        for run in runs:
            kept.append(drop(run.params, [run.velocity], run.masks, orders))
            run.write_back()
        found = scores() if early is None else early
        for run, left in zip(runs, kept, strict=True):
            values = self._flat.views(found[run.rows])
            grown = grow(run.params, [run.velocity], run.masks, left, values, orders)
            for name, mask in grown.items():
                run.masks[name].copy_(mask)
            run.write_back()

    def _random_scores(self, stage: Stage, seats: Sequence[Seat]) -> Tensor:
        found = torch.zeros(stage.theta.shape, dtype=torch.float64, device=stage.theta.device)
        for row, seat in enumerate(seats):
            held = {name: self._flat.view(stage.masks[row : row + 1], name)[0] for name in seat.broadcast.masks}
            for name, values in random_scores(held, *seat.draw).items():
                self._flat.view(found[row : row + 1], name)[0].copy_(values)
        return found

    def _refuse_diverged(self, stage: Stage, seats: Sequence[Seat], failures: Failures) -> None:
        finite = torch.isfinite(stage.theta).all(dim=1).tolist()
        for row, (seat, fine) in enumerate(zip(seats, finite, strict=True)):
            if not fine:
                weights = self._flat.views(stage.theta[row : row + 1])
                name = next(name for name, value in weights.items() if not torch.isfinite(value).all())
                error = diverged(name, seat.client, seat.broadcast.round, seat.plan.local.lr)
                failures.setdefault(row, error)

    def _changed(self, stage: Stage, seats: Sequence[Seat], before: Tensor | None) -> list[bool]:
        if seats[0].plan.own_layers:
            return [self._differs(stage, row, seat) for row, seat in enumerate(seats)]
        if before is None:
            return [False] * len(seats)
        changed: list[bool] = (stage.masks != before).any(dim=1).tolist()
        return changed

    def _differs(self, stage: Stage, row: int, seat: Seat) -> bool:
        """Whether a client with masks of its own holds others than it was sent."""
        sent = seat.broadcast.masks
        mine = masks_of(stage.masks, self._flat, row, seat)
        return any(name not in sent or not torch.equal(mask, sent[name]) for name, mask in mine.items())

    def _report(self, stage: Stage, seats: Sequence[Seat], report: Report, failures: Failures) -> Tensor:
        chosen = [self._reported(seat, report) for seat in seats]
        if report.kind == "hessian-gradient":
            return self._hessian_gradients(stage, seats, chosen, report)
        if report.kind == "sign":
            refuse_frozen(self._module)
        images = [seat.images[np.concatenate(batches)] for seat, batches in zip(seats, chosen, strict=True)]
        gradients = self._trainer.mean_gradient(stage, images, report.temperature)
        if report.kind == "sign":
            for row, seat in enumerate(seats):
                named = {name: value[0] for name, value in self._flat.views(gradients[row : row + 1]).items()}
                votes = failures.unless(row, partial(signs, named, report.bound, *seat.draw))
                self._flat.fill(gradients[row], votes or {})
        return gradients

    def _reported(self, seat: Seat, report: Report) -> list[Indices]:
        """Which of a seat's images, by their places among them, a report is made from."""
        labels = self._images.labels[torch.from_numpy(seat.images)].cpu().numpy()
        return reported_batches(labels, report, seat.plan.local, *seat.draw)

    def _hessian_gradients(
        self, stage: Stage, seats: Sequence[Seat], chosen: Sequence[Sequence[Indices]], report: Report
    ) -> Tensor:
        """One after another: methods ask for it once, of one client."""
        found, device = torch.zeros_like(stage.theta), stage.theta.device
        for row, (seat, batches) in enumerate(zip(seats, chosen, strict=True)):
            alone = _Alone(self._job(seat), self._module, stage, self._flat, row)
            placed = [torch.from_numpy(batch).to(device) for batch in batches]
            self._flat.fill(found[row], hessian_gradient(alone, placed, report))
        return found


class _Rows:
    """Some rows of a stage by tensor, copied, and brought back."""

    def __init__(self, stage: Stage, flat: Flat, rows: Tensor) -> None:
        self.rows = rows
        self._stage = stage
        self._copies = (stage.theta[rows], stage.velocity[rows], stage.masks[rows])
        theta, velocity, masks = self._copies
        self.params, self.velocity = flat.views(theta), flat.views(velocity)
        self.masks = flat.views(masks.view(torch.bool))

    def write_back(self) -> None:
        for all_rows, mine in zip(
            (self._stage.theta, self._stage.velocity, self._stage.masks), self._copies, strict=True
        ):
            all_rows[self.rows] = mine


@dataclass
class _Alone:
    """One model of a stage by itself, for what only autograd can do."""

    job: Job
    module: nn.Module
    stage: Stage
    flat: Flat
    row: int

    def differentiable(self) -> tuple[nn.Module, dict[str, nn.Parameter]]:
        row = slice(self.row, self.row + 1)
        params = {name: value[0] for name, value in self.flat.views(self.stage.theta[row]).items()}
        load(self.module, params, {name: value[self.row] for name, value in self.stage.buffers.items()})
        return self.module, dict(self.module.named_parameters())


def masks_of(masks: Tensor, flat: Flat, row: int, seat: Seat) -> dict[str, Tensor]:
    """One client's masks, bool [*shape] each, in the memory of all of them, uint8 [M, width]."""
    names = dict.fromkeys((*seat.broadcast.masks, *seat.plan.own_layers))
    held = masks[row : row + 1].view(torch.bool)
    return {name: flat.view(held, name)[0] for name in names}


def _by_run(seats: Sequence[Seat], device: torch.device) -> list[Tensor]:
    """The rows of each run's seats; each seat by itself where masks are the clients' own."""
    runs: dict[object, list[int]] = {}
    for row, seat in enumerate(seats):
        runs.setdefault(row if seat.plan.own_layers else id(seat.broadcast), []).append(row)
    return [torch.tensor(rows, device=device) for rows in runs.values()]
