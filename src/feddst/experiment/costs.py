"""What a run has cost so far by formula: bits up and down, and training FLOPs.

The paper charges 32(1−S)n bits a client a round each way, and n bits more when a mask travels, where n counts
weights and biases. The published code charges 32 bits for each active weight and each bias, (1−S)·(weights)
bits for an uploaded mask, and adds costs up only when it evaluates: a client that trained twice since the
last evaluation is charged once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from feddst.models import training_flops
from feddst.protocol import Broadcast, ClientWork, Masks, Tensors, Update

Accounting = Literal["paper", "published"]


@dataclass
class Ledger:
    """Running totals. All whole numbers, so that a resumed run adds up to the same."""

    accounting: Accounting
    layers: Mapping[str, int]
    multiply_adds: Mapping[str, int]
    upload_bits: int = 0
    download_bits: int = 0
    flops_dense: int = 0
    flops_sparse: int = 0
    mask_travels_down: bool = True
    unsettled: dict[int, int] = field(default_factory=dict)

    def charge_download(self, sent: Broadcast) -> None:
        """One client received the broadcast."""
        mask = bool(sent.masks) and self.mask_travels_down
        self.download_bits += self._bits(sent.params, sent.masks, mask)

    def charge_upload(self, sent: Broadcast, update: Update) -> None:
        """One client's update arrived."""
        masks = sent.masks if update.masks is None else update.masks
        bits = self._bits(update.params, masks, update.masks is not None)
        bits += sum(32 * value.numel() for tensors in update.extra.values() for value in tensors.values())
        if self.accounting == "paper":
            self.upload_bits += bits
        else:
            self.upload_bits += bits - self.unsettled.get(update.client, 0)
            self.unsettled[update.client] = bits

    def charge_training(self, work: ClientWork, masks: Masks, images: int) -> None:
        """One client trained; a readjustment adds one gradient that is dense in the weights alone."""
        densities = {name: float(mask.float().mean()) for name, mask in masks.items()}
        passes = images * work.local.epochs if work.train else 0
        self.flops_dense += passes * training_flops(self.multiply_adds, {})
        self.flops_sparse += passes * training_flops(self.multiply_adds, densities)
        if work.readjust is not None and work.readjust.growth.rule == "gradient":
            last = min(work.local.batch, images)
            growth = work.readjust.growth
            seen = min(images, growth.max_images) if growth.images == "all" else last
            mixed = {name: (2 * densities.get(name, 1.0) + 1) / 3 for name in self.multiply_adds}
            self.flops_sparse += seen * training_flops(self.multiply_adds, mixed)

    def close_round(self, *, mask_moved: bool, evaluated: bool) -> None:
        """The round is over."""
        self.mask_travels_down = mask_moved
        if evaluated:
            self.unsettled.clear()

    def as_dict(self) -> dict[str, Any]:
        """The totals, for a checkpoint."""
        names = ("upload_bits", "download_bits", "flops_dense", "flops_sparse", "mask_travels_down")
        return {name: getattr(self, name) for name in names} | {"unsettled": list(self.unsettled.items())}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from totals that `as_dict` gave."""
        for name, value in saved.items():
            setattr(self, name, dict(value) if name == "unsettled" else value)

    def _bits(self, params: Tensors, masks: Masks, mask_travels: bool) -> int:
        n = sum(value.numel() for value in params.values())
        prunable = sum(size for name, size in self.layers.items() if name in params)
        active = sum(
            int(masks[name].sum()) if name in masks else size for name, size in self.layers.items() if name in params
        )
        if self.accounting == "published":
            return 32 * (n - prunable + active) + (active if mask_travels else 0)
        values = round(32 * n * active / prunable) if prunable else 32 * n
        return values + (n if mask_travels else 0)
