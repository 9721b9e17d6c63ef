"""One client's round in PyTorch, as plainly as it can be written. Every faster engine is tested against this."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from feddst.clients.client import Client, beginning, train
from feddst.clients.optimizers.clipping import clip
from feddst.core import OPTIMIZERS, ClientOptimizer, Masks, Positions, Stepper, Tensors, packed, positions_of
from feddst.core.batches import call, divided
from feddst.core.keys import torch_seed
from feddst.core.minibatches import Indices, planned_steps
from feddst.errors import TrainingError
from feddst.models import load, persistent_buffers
from feddst.models.norms import lone_images
from feddst.wire import ClientTask


@dataclass
class TorchClient(Client):
    """A client whose weights live in a module, and whose gradients come from autograd."""

    module: nn.Module
    received: Tensors
    optimizer: ClientOptimizer
    stepper: Stepper
    planned: int
    taken: int = 0

    def epochs(self, epochs: Sequence[Sequence[Indices]]) -> list[float]:
        return [self._epoch(batches) for batches in epochs]

    def _epoch(self, batches: Sequence[Indices]) -> float:
        device = self.examples.device
        total = torch.zeros((), device=device)
        for indices in batches:
            batch = torch.from_numpy(indices).to(device)
            total += self.step(batch) * len(batch)
        return float(total)

    def step(self, batch: Tensor) -> Tensor:
        """One step of the optimizer on the images `batch` (int64 indices); returns the loss before it."""
        plan, seen = self.task.plan, self.examples.at(batch)
        changing = [one for one in plan.steps if one.changes_gradients]
        local = plan.local.at_step(self.taken, self.planned)
        try:
            loss = self.objective.loss(call(self.module, seen.inputs), seen.targets)
        except IndexError as error:  # data that are read as needed are not looked through beforehand
            raise TrainingError(
                f"client {self.task.client} cannot be trained in round {self.task.round}: a token or a class is beyond "
                f"those that the network has ({error})"
            ) from error
        with torch.no_grad():
            gradients = self._clipped(self._gradients(loss)) if local.clip else self._gradients(loss)
            steps: dict[str, Tensor] = {}
            for name, g in gradients.items():
                theta, mask = self.params[name], self.masks.get(name)
                # Never in place: autograd may hand out the same tensor for two parameters.
                step = torch.add(g, theta, alpha=0.0 if self.optimizer.decoupled else local.l2)
                _cut(step, mask)
                for one in changing:
                    one.at_gradient(step, theta, self.received[name])
                    _cut(step, mask)
                steps[name] = step
            self.stepper.step(steps, self.masks, local)
        self.taken += 1
        return loss.detach()

    def _clipped(self, gradients: Tensors) -> Tensors:
        """The gradients of active weights, shortened; others do not count towards the norm."""
        active = {name: g * self.masks[name] if name in self.masks else g.clone() for name, g in gradients.items()}
        clip(active, self.task.plan.local.clip)
        return active

    def mean_gradient(self, images: Tensor, temperature: float = 1.0) -> dict[str, Tensor]:
        self.module.eval()
        total = {name: torch.zeros_like(value) for name, value in self.params.items()}
        chunks = [self.examples.at(chunk) for chunk in torch.split(images, 256)]
        terms = sum(self.objective.terms(seen.targets) for seen in chunks)
        for seen in chunks:
            outputs = divided(call(self.module, seen.inputs), temperature)
            for name, g in self._gradients(self.objective.loss(outputs, seen.targets, "sum")).items():
                total[name] += g / terms
        self.module.train()
        return total

    def differentiable(self) -> tuple[nn.Module, dict[str, nn.Parameter]]:
        return self.module, dict(self.module.named_parameters())

    def expose(self) -> None:
        """The parameters are the module's own; the optimizer's state may be new tensors."""
        self.slots = self.stepper.slots

    def final(self, positions: Positions | None) -> dict[str, Tensor]:
        weights = {name: value.detach().cpu().clone() for name, value in self.params.items()}
        here = {name: mask.cpu() for name, mask in self.masks.items()}
        return packed(weights, positions_of(here) if positions is None else positions)

    def adopt(self, masks: Masks) -> None:
        self.masks = masks

    def buffers(self) -> dict[str, Tensor]:
        return {name: value.detach().cpu().clone() for name, value in persistent_buffers(self.module)}

    def _gradients(self, loss: Tensor) -> dict[str, Tensor]:
        """The gradient of every parameter that is trained and that the loss depends on."""
        trained = {name: value for name, value in self.params.items() if value.requires_grad}
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        return {name: g for name, g in zip(trained, gradients, strict=True) if g is not None}


def _cut(values: Tensor, mask: Tensor | None) -> None:
    if mask is not None:
        values.mul_(mask)


def train_client(module: nn.Module, task: ClientTask) -> TorchClient:
    """The client of a task, after its training in `module`, whose tensors are overwritten."""
    begun = beginning(module, task)
    device = begun.task.examples.device
    load(module, begun.weights, task.sent.broadcast.buffers)
    module.train()
    params: dict[str, Tensor] = dict(module.named_parameters())
    optimizer = OPTIMIZERS[task.plan.local.optimizer]
    stepper = optimizer.begin(params)
    client = TorchClient(
        task=begun.task,
        masks={name: mask.to(device) for name, mask in begun.masks.items()},
        params=params,
        slots=stepper.slots,
        module=module,
        received={name: value.detach().clone() for name, value in params.items()},
        optimizer=optimizer,
        stepper=stepper,
        planned=planned_steps(len(begun.task.examples), task.plan.local.batch, task.plan.passes),
    )
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), lone_images(module, f"client {task.client}"):
        torch.manual_seed(torch_seed(task.seed, f"torch {task.round} {task.client}"))
        client.loss = train(client)
    return client
