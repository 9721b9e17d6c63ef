"""What a run has cost so far: bytes as they were sent, bits by formula, and FLOPs.

The paper charges 32(1−S)n bits a client a round each way, and n bits more when a mask travels, where n counts
weights and biases. The published code charges 32 bits for each active weight and each bias, for a mask (1−S)·w
bits up and w bits down, where w counts prunable weights, and adds costs up only when it evaluates: a client that
took part twice since the last evaluation is charged once.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from feddst.core import ClientPlan, Tensors
from feddst.models import forward_flops, training_flops
from feddst.wire import ClientResult, ClientTask, Reference
from feddst.wire.header import SIZE as HEADER_BYTES

Formula = Literal["paper", "published"]


@dataclass
class Traffic:
    """Bytes sent one way, and how many of them were masks and headers.

    The rest are values, buffers, padding between sections, and all of the payloads that could not be used.
    """

    total: int = 0
    masks: int = 0
    headers: int = 0

    def add(self, payload: int, mask: int) -> None:
        """Count a payload; `mask` is the size of its mask section."""
        self.total += payload
        self.masks += mask
        self.headers += HEADER_BYTES

    def add_unused(self, size: int) -> None:
        """Count a late or refused payload, without its sections."""
        self.total += size


@dataclass(frozen=True)
class Forward:
    """FLOPs of one forward pass for one input, two for each multiply-add: without masks, and with them."""

    dense: int
    sparse: int


@dataclass
class Ledger:
    """Running totals. All whole numbers, so that a resumed run adds up to the same.

    `up` and `down` are what was really sent. The bits follow `formula`, with `up_width` and `down_width` bits a value
    (the published code always counts 32). `layers` are the sizes of the prunable layers. `unsettled` holds, for the
    published way of adding up, what each client has been charged since the last scheduled evaluation.
    """

    formula: Formula
    layers: Mapping[str, int]
    multiply_adds: Mapping[str, int]
    up_width: float = 32
    down_width: float = 32
    up: Traffic = field(default_factory=Traffic)
    down: Traffic = field(default_factory=Traffic)
    upload_bits: int = 0
    download_bits: int = 0
    flops_dense: int = 0
    flops_sparse: int = 0
    mask_travels_down: bool = True
    unsettled: dict[str, dict[int, int]] = field(default_factory=lambda: {"upload": {}, "download": {}})
    _priced: tuple[object, tuple[int, int, int]] = (None, (0, 0, 0))
    _sent: tuple[Reference, bool, int] | None = None
    _price: tuple[Reference, ClientPlan, Mapping[str, int] | None, int] | None = None

    def book_sent(self, client: int, sizes: tuple[int, int], sent: Reference, *, own_masks: bool = False) -> None:
        """Count a message to a client; `sizes` are its bytes and those of its mask, `sent` its content.

        The server's mask is charged to all clients after it has moved; masks of the client's own when they travel.
        """
        travels = sizes[1] > 0 if own_masks else self.mask_travels_down
        last = self._sent
        if last is None or last[0] is not sent or last[1] is not travels:
            self._sent = last = sent, travels, self.download_price(sent, mask_travels=travels)
        self.down.add(*sizes)
        self.download_bits += self._owed("download", client, last[2])

    def book_result(self, task: ClientTask, result: ClientResult) -> None:
        """Count a result's upload, and its FLOPs if the client finished its task; otherwise they are unknown."""
        if result.worked:
            own = result.own if task.plan.own_layers else None  # else it trained, at first at least, as it was sent
            self.charge_training(task.plan, task.sent.active if own is None else own, task.trained_on)
        if result.weight:
            self.up.add(result.size, result.mask_bytes)
            self.upload_bits += self._owed("upload", task.client, self._price_of(task, result.own))
        else:
            self.up.add_unused(result.size)

    def _price_of(self, task: ClientTask, own: Mapping[str, int] | None) -> int:
        """What an update costs by formula; cached, since it is mostly the same as for the one before."""
        last = self._price
        if last is None or last[0] is not task.sent or last[1] != task.plan or last[2] != own:
            bits = self.upload_price(task.sent, task.plan, own)
            self._price = last = (task.sent, task.plan, own, bits)
        return last[3]

    def upload_price(self, sent: Reference, plan: ClientPlan, own: Mapping[str, int] | None) -> int:
        """The bits of an update; `own` is how many weights the client's masks keep, if it sends some of its own."""
        active = sent.active if own is None else own
        everything = sent.broadcast.params
        params = {name: value for name, value in everything.items() if plan.train and name not in plan.keep}
        extras = len(plan.groups) * sum(value.numel() for value in everything.values())
        mask = 0 if own is None else self._mask_bits(params, active, down=False)
        return self._value_bits(params, active, self.up_width) + mask + round(self.up_width * extras)

    def upload_bound(self, sent: Reference, plan: ClientPlan) -> int:
        """The most bits that a client with this plan can upload."""
        moves = any(plan.mask_bounds(name, sent.active.get(name)) for name in (*sent.active, *plan.own_layers))
        return self.upload_price(sent, plan, sent.active if moves else None)

    def download_price(self, sent: Reference, *, mask_travels: bool) -> int:
        """The bits of one broadcast, with its mask or without."""
        params = sent.broadcast.params
        mask = self._mask_bits(params, sent.active, down=True) if sent.active and mask_travels else 0
        return self._value_bits(params, sent.active, self.down_width) + mask

    def charge_training(self, plan: ClientPlan, active: Mapping[str, int], images: int) -> None:
        """Count a client's training with these numbers of active weights in its masked layers.

        A readjustment or a report adds a gradient that is dense in the weights alone.
        """
        key = tuple(active.items())
        if key != self._priced[0]:
            self._priced = (key, self._flops(self._densities(active)))
        dense, sparse, mixed = self._priced[1]
        passes = images * plan.passes
        self.flops_dense += passes * dense
        self.flops_sparse += passes * sparse + plan.differentiated(images) * mixed

    def forward(self, active: Mapping[str, int]) -> Forward:
        """What a forward pass costs with these numbers of active weights in the masked layers."""
        dense, sparse = (forward_flops(self.multiply_adds, some) for some in ({}, self._densities(active)))
        return Forward(dense, sparse)

    def _densities(self, active: Mapping[str, int]) -> dict[str, float]:
        return {name: count / self.layers[name] for name, count in active.items()}

    def _flops(self, densities: Mapping[str, float]) -> tuple[int, int, int]:
        """For an image: a dense training pass, one with these densities, and one with a dense gradient of weights."""
        mixed = {name: (2 * densities.get(name, 1.0) + 1) / 3 for name in self.multiply_adds}
        counts = self.multiply_adds
        return training_flops(counts, {}), training_flops(counts, densities), training_flops(counts, mixed)

    def close_round(self, *, mask_moved: bool, scheduled_evaluation: bool) -> None:
        """The round is over."""
        self.mask_travels_down, self._sent, self._price = mask_moved, None, None
        if scheduled_evaluation:
            self.unsettled = {"upload": {}, "download": {}}

    def as_dict(self) -> dict[str, Any]:
        """The totals, for a checkpoint."""
        names = ("upload_bits", "download_bits", "flops_dense", "flops_sparse", "mask_travels_down")
        unsettled = {way: list(bits.items()) for way, bits in self.unsettled.items()}
        sent = {"up": asdict(self.up), "down": asdict(self.down)}
        return {name: getattr(self, name) for name in names} | {"unsettled": unsettled} | sent

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from totals that `as_dict` gave."""
        totals = dict(saved)
        self.up, self.down = Traffic(**totals.pop("up")), Traffic(**totals.pop("down"))
        self.unsettled = {way: dict(bits) for way, bits in totals.pop("unsettled").items()}
        for name, value in totals.items():
            setattr(self, name, value)

    def _owed(self, way: str, client: int, bits: int) -> int:
        """What a charge adds to the total: all of it, or (published) what exceeds the charge that it overwrites."""
        if self.formula == "paper":
            return bits
        before = self.unsettled[way].get(client, 0)
        self.unsettled[way][client] = bits
        return bits - before

    def _value_bits(self, params: Tensors, kept: Mapping[str, int], width: float) -> int:
        n, prunable, active = self._counts(params, kept)
        if self.formula == "published":
            return 32 * (n - prunable + active)
        return round(width * n * (active / prunable if prunable else 1))

    def _mask_bits(self, params: Tensors, kept: Mapping[str, int], *, down: bool) -> int:
        n, prunable, active = self._counts(params, kept)
        if self.formula == "paper":
            return n
        return prunable if down else active

    def _counts(self, params: Tensors, kept: Mapping[str, int]) -> tuple[int, int, int]:
        """How many values there are, how many of them prunable, and how many of those active."""
        sizes = {name: size for name, size in self.layers.items() if name in params}
        active = sum(kept.get(name, size) for name, size in sizes.items())
        return sum(value.numel() for value in params.values()), sum(sizes.values()), active
