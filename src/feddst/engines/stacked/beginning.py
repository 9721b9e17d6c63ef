"""Clients' initial models: the broadcast, the tensors they keep to themselves, and lottery tickets."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from feddst.clients.client import beginning
from feddst.core import OPTIMIZERS, Examples, LocalOptimizer, Masks
from feddst.engines.stacked.flat import Flat
from feddst.engines.stacked.model_stack import ModelStack
from feddst.engines.stacked.slots import Rows
from feddst.wire import ClientTask


class MaskRows:
    """Masks as rows of a stack, uint8 [width], computed once for as long as the same ones are sent."""

    def __init__(self, flat: Flat, module: nn.Module, device: torch.device) -> None:
        self.frozen = {name for name, value in module.named_parameters() if not value.requires_grad}
        self._flat = flat
        self._device = device
        self._known: dict[int, tuple[Masks, Tensor]] = {}

    def of(self, sent: Sequence[Masks]) -> Tensor:
        """A row for each; all other masks are forgotten."""
        self._known = {id(masks): self._known.get(id(masks)) or (masks, self._made(masks)) for masks in sent}
        return torch.stack([self._known[id(masks)][1] for masks in sent])

    def _made(self, masks: Masks) -> Tensor:
        row = torch.zeros(self._flat.width, dtype=torch.uint8, device=self._device)
        self.fill(row, masks)
        return row

    def fill(self, row: Tensor, masks: Masks) -> None:
        """Write 1 where a weight may change, else 0."""
        for name in self._flat.shapes:
            view = self._flat.view(row[None], name)[0]
            if name in self.frozen:
                view.zero_()
            elif name in masks:
                view.copy_(masks[name])
            else:
                view.fill_(1)


def begin(
    tasks: Sequence[ClientTask], stack: ModelStack, flat: Flat, module: nn.Module, images: Examples, mask_rows: MaskRows
) -> list[ClientTask]:
    """Write the tasks' initial models into a stack; returns the tasks with their training images."""
    everybody = [task.sent.broadcast for task in tasks]
    sent = {id(broadcast): broadcast for broadcast in everybody}
    number = {broadcast: i for i, broadcast in enumerate(sent)}
    device = stack.theta.device
    rows = torch.tensor([number[id(broadcast)] for broadcast in everybody], device=device)
    theta = torch.zeros(len(sent), flat.width, device=device)
    for name in everybody[0].params:
        flat.view(theta, name).copy_(torch.stack([broadcast.params[name] for broadcast in sent.values()]))
    masks = mask_rows.of([broadcast.masks for broadcast in sent.values()])
    torch.index_select(theta, 0, rows, out=stack.theta)
    torch.index_select(masks, 0, rows, out=stack.masks)
    optimizer = OPTIMIZERS[tasks[0].plan.local.optimizer]
    stack.forget(optimizer.slots if isinstance(optimizer, LocalOptimizer) else ())
    stack.buffers = {
        name: torch.stack([broadcast.buffers[name] for broadcast in sent.values()])[rows]
        for name in everybody[0].buffers
    }
    begun = [_own(task, row, stack, flat, module, images, mask_rows) for row, task in enumerate(tasks)]
    stack.received.copy_(stack.theta)
    return begun


def _own(
    task: ClientTask, row: int, stack: ModelStack, flat: Flat, module: nn.Module, images: Examples, mask_rows: MaskRows
) -> ClientTask:
    """Write what a client does not get from the broadcast."""
    plan, mine = task.plan, task.data.indices
    if plan.keep:
        kept = {name: task.state.tensors.get(name, task.initial[name]) for name in sorted(plan.keep)}
        flat.fill(stack.theta[row], kept)
    if not plan.own_layers:
        return task
    begun = beginning(module, task.with_data(images.at(torch.from_numpy(mine).to(images.device))))
    flat.fill(stack.theta[row], begun.weights)
    mask_rows.fill(stack.masks[row], begun.masks)
    return task if begun.rows is None else task.with_data(Rows(mine[begun.rows.cpu().numpy()]))
