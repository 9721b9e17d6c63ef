"""A round of clients side by side, from the broadcast to the models they hold at the end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from feddst.clients.client import diverged, finished, refuse_diverged, stretches
from feddst.clients.reference import train_client
from feddst.clients.steps import LotteryPruning, Proximal, Readjust, Report
from feddst.clients.steps.readjust import drop, grow, growth_images, random_scores
from feddst.clients.steps.report import hessian_gradient, refuse_frozen, reported_batches, signs
from feddst.core import ClientPlan, ClientState, LocalTraining, positions_of, unpacked
from feddst.core.keys import torch_seed
from feddst.core.minibatches import Indices, cuts
from feddst.core.plan import USUAL
from feddst.engines.native.known import Detour, why_unknown
from feddst.engines.stacked.beginning import MaskRows, begin
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.lockstep import Lockstep, epoch_losses, in_lockstep
from feddst.engines.stacked.model_stack import ModelStack, Trainer
from feddst.engines.stacked.slots import Images, sequence
from feddst.engines.stacked.squares import StackedSquares
from feddst.errors import DivergenceError
from feddst.models import load
from feddst.wire import ClientTask

T = TypeVar("T")

SIDE_BY_SIDE = {Readjust, Proximal, LotteryPruning, Report}
"""The steps carried out for all models at once; with others one client is trained after another."""


def why_alone(plan: ClientPlan) -> str:
    """Why clients with this plan are trained one after another; empty if they go side by side."""
    others = [step.name for step in plan.steps if type(step) not in SIDE_BY_SIDE]
    if others:
        return f"the step {others[0]} is asked for"
    return why_unknown(plan) or why_unlike(plan.local)


def why_unlike(local: LocalTraining) -> str:
    """The objective or optimizer that is not known side by side; empty if both are."""
    for name in ("objective", "optimizer"):
        if (found := getattr(local, name)) != getattr(USUAL, name):
            return f"local.{name} is {found}"
    return ""


class Failures(dict[int, DivergenceError]):
    """Why clients, by row, send nothing."""

    def unless(self, row: int, attempt: Callable[[], T]) -> T | None:
        """The result of an attempt for one client; None if it has diverged."""
        try:
            return attempt()
        except DivergenceError as error:
            self.setdefault(row, error)
            return None


@dataclass(frozen=True)
class Trained:
    """Tasks after their round, and the clients' models in the same order.

    `indices` are the tasks' positions in the engine's list; `changed` says whose masks differ from those they were
    sent; `losses` are those of the last epochs; `reports` are sent beside the weights, [M, width] each. `failures` are
    the clients that diverged. `kept` is the state of clients that were trained one after another, by row.
    """

    indices: Sequence[int]
    tasks: Sequence[ClientTask]
    stack: ModelStack
    changed: Sequence[bool]
    losses: Sequence[float]
    reports: dict[str, Tensor]
    failures: Failures
    kept: Mapping[int, ClientState] = field(default_factory=dict)


class StackedTrainer:
    """Trains the models of many clients at once, from a module, the images, and a trainer that takes steps."""

    def __init__(self, module: nn.Module, flat: Flat, images: Images, trainer: Trainer) -> None:
        self._module = module
        self._flat = flat
        self._images = images
        self._trainer = trainer
        self._mask_rows = MaskRows(flat, module, images.inputs.device)
        self._detour = Detour(
            "training one client after another where %s, which is not known side by side; this is slower"
        )

    def train(self, indices: Sequence[int], asked: Sequence[ClientTask]) -> Trained:
        """Carry out tasks that are alike and have these indices."""
        plan, failures = asked[0].plan, Failures()
        stack = self._trainer.stack(len(asked))
        tasks = begin(asked, stack, self._flat, self._module, self._images, self._mask_rows)
        if reason := why_alone(plan):
            self._detour.say([reason])
            return self._one_by_one(indices, asked, stack, failures)
        before = stack.masks.clone() if plan.step(Readjust) is not None else None
        squares = StackedSquares.of(stack) if "squared-gradient" in plan.groups else None
        cuda = [stack.theta.device] if stack.theta.is_cuda else []
        with torch.random.fork_rng(devices=cuda):
            # A module's random numbers (for dropout, say) follow from the first task here.
            seed, round, client = tasks[0].draw
            torch.manual_seed(torch_seed(seed, f"torch {round} {client} stacked"))
            losses = self._learn(stack, tasks, failures, squares) if plan.train else [0.0] * len(tasks)
        self._refuse_diverged(stack, tasks, failures)
        reports: dict[str, Tensor] = {
            report.kind: self._report(stack, tasks, report, failures)
            for report in plan.steps
            if isinstance(report, Report) and report.kind != "squared-gradient"
        }
        if squares is not None:
            reports["squared-gradient"] = squares.mean()
        return Trained(indices, asked, stack, self._changed(stack, tasks, before), losses, reports, failures)

    def _one_by_one(
        self, indices: Sequence[int], asked: Sequence[ClientTask], stack: ModelStack, failures: Failures
    ) -> Trained:
        """One after another, as in the reference engine."""
        reports: dict[str, Tensor] = {group: torch.zeros_like(stack.theta) for group in asked[0].plan.groups}
        losses, changed = [0.0] * len(asked), [False] * len(asked)
        kept: dict[int, ClientState] = {}
        for row, task in enumerate(map(self._alone, asked)):
            client = failures.unless(row, partial(train_client, self._module, task))
            found = None if client is None else failures.unless(row, partial(finished, client))
            if client is None or found is None:
                continue
            update, state = found
            kept[row] = state
            losses[row], changed[row] = client.loss, update.masks is not None
            masks = task.sent.broadcast.masks if update.masks is None else update.masks
            own = {name: state.tensors[name] for name in task.plan.keep}
            self._flat.fill(stack.theta[row], {**unpacked(update.params, positions_of(masks), masks), **own})
            self._mask_rows.fill(stack.masks[row], masks)
            for name, value in update.buffers.items():
                stack.buffers[name][row] = value.to(stack.theta.device)
            for kind, rows in reports.items():
                self._flat.fill(rows[row], update.extra[kind])
        return Trained(indices, asked, stack, changed, losses, reports, failures, kept)

    def _alone(self, task: ClientTask) -> ClientTask:
        """A task with its images, and with the broadcast as clients receive it: on the CPU."""
        return task.with_data(self._images.at(task.data.indices)).read_as(task.sent.on_cpu())

    def _learn(
        self, stack: ModelStack, tasks: Sequence[ClientTask], failures: Failures, squares: StackedSquares | None
    ) -> list[float]:
        """All epochs, with each readjustment after its epoch; returns the last epochs' losses."""
        sequences = [sequence(task) for task in tasks]
        losses: list[list[float]] = [[] for _ in tasks]
        for stretch, due in stretches(tasks[0].plan.steps, max(map(len, sequences))):
            found = self._epochs(stack, tasks, [one[stretch] for one in sequences], failures, squares, stretch.start)
            losses = [before + after for before, after in zip(losses, found, strict=True)]
            # A straggler that stops early readjusts after its last epoch.
            ends = [one[min(stretch.stop, len(one)) - 1] for one in sequences]
            for step in due:
                assert isinstance(step, Readjust)
                batch = tasks[0].plan.local.batch
                self._readjust(stack, tasks, step, [end[cuts(len(end), batch)[-1]] for end in ends])
        return [each[-1] for each in losses]

    def _epochs(
        self,
        stack: ModelStack,
        tasks: Sequence[ClientTask],
        sequences: Sequence[Indices],
        failures: Failures,
        squares: StackedSquares | None,
        done: int = 0,
    ) -> list[list[float]]:
        """Some epochs, after `done` of them; returns each task's mean loss in each."""
        local, proximal = tasks[0].plan.local, tasks[0].plan.step(Proximal)
        mu = 0.0 if proximal is None else proximal.pull
        steps = in_lockstep(sequences, local.batch)
        if not steps.steps:
            return [[] for _ in tasks]
        losses = self._steps(stack, steps, local, mu, squares).double().cpu().numpy()
        found = epoch_losses(losses, steps.lengths, sequences)
        if not np.isfinite(losses).all():
            for row, (task, each) in enumerate(zip(tasks, found, strict=True)):
                for epoch, loss in enumerate(each, done + 1):
                    which = loss, epoch, task.client, task.round, local.lr
                    failures.unless(row, partial(refuse_diverged, *which))
        return found

    def _steps(
        self, stack: ModelStack, steps: Lockstep, local: LocalTraining, mu: float, squares: StackedSquares | None
    ) -> Tensor:
        """`Trainer.epochs`, with the squared gradients of each step's minibatches gathered before the step."""
        if squares is None:
            return self._trainer.epochs(stack, steps, local, mu)
        losses = []
        for one in steps.one_by_one():
            squares.add(self._trainer.mean_gradient(stack, one.minibatches()), one.lengths[0] > 0)
            losses.append(self._trainer.epochs(stack, one, local, mu))
        return torch.cat(losses)

    def _readjust(
        self, stack: ModelStack, tasks: Sequence[ClientTask], readjust: Readjust, last_batches: Sequence[Indices]
    ) -> None:
        """Readjust all masks, those of one run together: they hold equally many weights."""

        def scores() -> Tensor:
            if readjust.growth.rule == "random":
                return self._random_scores(stack, tasks)
            if readjust.growth.images == "last-batch":
                return self._trainer.mean_gradient(stack, last_batches).abs_()
            chosen = [task.data.indices[growth_images(len(task.data), readjust.growth, *task.draw)] for task in tasks]
            return self._trainer.mean_gradient(stack, chosen).abs_()

        early = scores() if readjust.growth.weights == "unpruned" else None
        kept: list[dict[str, Tensor]] = []
        runs = [_Rows(stack, self._flat, rows) for rows in _by_run(tasks, stack.theta.device)]
        for run in runs:
            kept.append(drop(run.params, [run.velocity], run.masks, readjust))
            run.write_back()
        found = scores() if early is None else early
        for run, left in zip(runs, kept, strict=True):
            values = self._flat.views(found[run.rows])
            grown = grow(run.params, [run.velocity], run.masks, left, values, readjust)
            for name, mask in grown.items():
                run.masks[name].copy_(mask)
            run.write_back()

    def _random_scores(self, stack: ModelStack, tasks: Sequence[ClientTask]) -> Tensor:
        found = torch.zeros(stack.theta.shape, dtype=torch.float64, device=stack.theta.device)
        for row, task in enumerate(tasks):
            held = {name: self._flat.view(stack.masks[row : row + 1], name)[0] for name in task.sent.broadcast.masks}
            for name, values in random_scores(held, *task.draw).items():
                self._flat.view(found[row : row + 1], name)[0].copy_(values)
        return found

    def _refuse_diverged(self, stack: ModelStack, tasks: Sequence[ClientTask], failures: Failures) -> None:
        finite = torch.isfinite(stack.theta).all(dim=1).tolist()
        for row, (task, fine) in enumerate(zip(tasks, finite, strict=True)):
            if not fine:
                weights = self._flat.views(stack.theta[row : row + 1])
                name = next(name for name, value in weights.items() if not torch.isfinite(value).all())
                error = diverged(name, task.client, task.round, task.plan.local.lr)
                failures.setdefault(row, error)

    def _changed(self, stack: ModelStack, tasks: Sequence[ClientTask], before: Tensor | None) -> list[bool]:
        if tasks[0].plan.own_layers:
            return [self._differs(stack, row, task) for row, task in enumerate(tasks)]
        if before is None:
            return [False] * len(tasks)
        changed: list[bool] = (stack.masks != before).any(dim=1).tolist()
        return changed

    def _differs(self, stack: ModelStack, row: int, task: ClientTask) -> bool:
        """Whether the masks of a client with its own differ from those it was sent."""
        sent = task.sent.broadcast.masks
        mine = masks_of(stack.masks, self._flat, row, task)
        return any(name not in sent or not torch.equal(mask, sent[name]) for name, mask in mine.items())

    def _report(self, stack: ModelStack, tasks: Sequence[ClientTask], report: Report, failures: Failures) -> Tensor:
        chosen = [self._reported(task, report) for task in tasks]
        if report.kind == "hessian-gradient":
            return self._hessian_gradients(stack, tasks, chosen, report)
        if report.kind == "sign":
            refuse_frozen(self._module)
        images = [task.data.indices[np.concatenate(batches)] for task, batches in zip(tasks, chosen, strict=True)]
        gradients = self._trainer.mean_gradient(stack, images, report.temperature)
        if report.kind == "sign":
            for row, task in enumerate(tasks):
                named = {name: value[0] for name, value in self._flat.views(gradients[row : row + 1]).items()}
                votes = failures.unless(row, partial(signs, named, report.bound, *task.draw))
                self._flat.fill(gradients[row], votes or {})
        return gradients

    def _reported(self, task: ClientTask, report: Report) -> list[Indices]:
        """The images that a report is made from, by their places among the task's."""
        labels = self._images.labels[torch.from_numpy(task.data.indices)].cpu().numpy()
        return reported_batches(labels, report, task.plan.local, *task.draw)

    def _hessian_gradients(
        self, stack: ModelStack, tasks: Sequence[ClientTask], chosen: Sequence[Sequence[Indices]], report: Report
    ) -> Tensor:
        """One after another: methods ask for it once, from one client."""
        found, device = torch.zeros_like(stack.theta), stack.theta.device
        for row, (task, batches) in enumerate(zip(tasks, chosen, strict=True)):
            alone = _Alone(self._alone(task), self._module, stack, self._flat, row)
            placed = [torch.from_numpy(batch).to(device) for batch in batches]
            self._flat.fill(found[row], hessian_gradient(alone, placed, report))
        return found


class _Rows:
    """Some rows of a stack by tensor, copied; can be written back."""

    def __init__(self, stack: ModelStack, flat: Flat, rows: Tensor) -> None:
        self.rows = rows
        self._stack = stack
        self._copies = (stack.theta[rows], stack.velocity[rows], stack.masks[rows])
        theta, velocity, masks = self._copies
        self.params, self.velocity = flat.views(theta), flat.views(velocity)
        self.masks = flat.views(masks.view(torch.bool))

    def write_back(self) -> None:
        for all_rows, mine in zip(
            (self._stack.theta, self._stack.velocity, self._stack.masks), self._copies, strict=True
        ):
            all_rows[self.rows] = mine


@dataclass
class _Alone:
    """One model of a stack, for what needs autograd."""

    task: ClientTask
    module: nn.Module
    stack: ModelStack
    flat: Flat
    row: int

    def differentiable(self) -> tuple[nn.Module, dict[str, nn.Parameter]]:
        row = slice(self.row, self.row + 1)
        params = {name: value[0] for name, value in self.flat.views(self.stack.theta[row]).items()}
        load(self.module, params, {name: value[self.row] for name, value in self.stack.buffers.items()})
        return self.module, dict(self.module.named_parameters())


def masks_of(masks: Tensor, flat: Flat, row: int, task: ClientTask) -> dict[str, Tensor]:
    """One client's masks, bool [*shape] each, in the memory of all of them, uint8 [M, width]."""
    names = dict.fromkeys((*task.sent.broadcast.masks, *task.plan.own_layers))
    held = masks[row : row + 1].view(torch.bool)
    return {name: flat.view(held, name)[0] for name in names}


def _by_run(tasks: Sequence[ClientTask], device: torch.device) -> list[Tensor]:
    """The rows of each run's tasks; each task by itself where masks are the clients' own."""
    runs: dict[object, list[int]] = {}
    for row, task in enumerate(tasks):
        runs.setdefault(row if task.plan.own_layers else id(task.sent.broadcast), []).append(row)
    return [torch.tensor(rows, device=device) for rows in runs.values()]
