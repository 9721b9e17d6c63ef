"""A client's task in one round, and its result: the two records that every engine carries."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from feddst.core import ClientData, ClientPlan, ClientState, Examples, Tensors
from feddst.wire.config import WireConfig
from feddst.wire.reference import Reference

if TYPE_CHECKING:
    from feddst.wire.broadcast import BroadcastEncoder


class Message:
    """A broadcast for one client: bytes that have arrived, or an encoder that writes them when they are needed.

    `held` is the bitmap of the mask that the client is known to hold.
    """

    def __init__(
        self, payload: bytes | None = None, held: bytes = b"", encoder: "BroadcastEncoder | None" = None
    ) -> None:
        self._payload = payload
        self._read: Reference | None = None
        self.held = held
        self.encoder = encoder

    @property
    def payload(self) -> bytes:
        """The bytes."""
        if self._payload is None:
            assert self.encoder is not None
            self._payload = self.encoder.payload(self.held)
        return self._payload

    @property
    def written(self) -> bool:
        """Whether the bytes are there already."""
        return self._payload is not None

    @property
    def sizes(self) -> tuple[int, int]:
        """How many bytes it has, and how many of them are its mask; needs its encoder."""
        assert self.encoder is not None
        return self.encoder.sizes(self)

    @property
    def reference(self) -> Reference:
        """The broadcast as the client reads it."""
        found = self.encoder.reference if self._read is None and self.encoder is not None else self._read
        if found is None:
            raise ValueError("this message has not been read yet")
        return found

    def read_as(self, reference: Reference) -> "Message":
        """The same message, read as this broadcast."""
        message = Message(self._payload, self.held, self.encoder)
        message._read = reference
        return message

    def __reduce__(self) -> tuple[type["Message"], tuple[bytes, bytes]]:
        """Only the bytes go to another process, which reads them itself."""
        return Message, (self.payload, self.held)


@dataclass(frozen=True, eq=False)
class ClientTask:
    """One client's task in one round of one run: its id, its plan, the message to it, and where its data are.

    `state` is what the client kept from earlier rounds, `wire` how it encodes its update. `initial` are the run's
    initial weights, for plans that need them: they follow from the seed, so a client can draw them itself and they
    need not be sent.
    """

    client: int
    seed: int
    plan: ClientPlan
    message: Message
    data: ClientData = field(default_factory=Examples)
    state: ClientState = field(default_factory=ClientState)
    wire: WireConfig = WireConfig()
    initial: Tensors = field(default_factory=dict)

    @property
    def sent(self) -> Reference:
        """The broadcast as the client has it."""
        return self.message.reference

    @property
    def encoder(self) -> "BroadcastEncoder":
        """What wrote its message: on the server alone."""
        assert self.message.encoder is not None
        return self.message.encoder

    @property
    def round(self) -> int:
        """The round's number."""
        return self.sent.broadcast.round

    @property
    def examples(self) -> Examples:
        """Its data as tensors, which must have been loaded."""
        assert isinstance(self.data, Examples)
        return self.data

    @property
    def draw(self) -> tuple[int, int, int]:
        """What its random draws are keyed by: seed, round, client."""
        return self.seed, self.round, self.client

    @property
    def trained_on(self) -> int:
        """How many examples it trains on, or takes its reports over."""
        return self.plan.trained_on(len(self.data))

    @property
    def largest_weight(self) -> int:
        """The largest n_c that it may claim."""
        return self.plan.local.weight(self.trained_on)

    def with_data(self, data: ClientData) -> "ClientTask":
        """The same task on other data."""
        return replace(self, data=data)

    def read_as(self, reference: Reference, data: ClientData | None = None) -> "ClientTask":
        """The same task, its message read as this; with other data if they are given."""
        return replace(self, message=self.message.read_as(reference), data=self.data if data is None else data)


@dataclass(frozen=True)
class ClientResult:
    """The result of one client's task.

    A client answers with a `payload`, what it keeps (`state`), and its last epoch's mean `loss`, NaN if it did not get
    that far. Once the server or an engine has added up its update, there is a receipt instead of the payload: `size`
    bytes, of which `mask_bytes` are its mask, its n_c `weight`, and `own`, how many weights the client's masks keep if
    they are not those it was sent. A `failure` says why there is no usable update; then `weight` is 0. If not `asked`,
    the client was never given its task. A client that has `diverged` could not train the model that it was sent.
    """

    payload: bytes | None = None
    state: ClientState = field(default_factory=ClientState)
    loss: float = math.nan
    size: int = 0
    mask_bytes: int = 0
    weight: int = 0
    own: Mapping[str, int] | None = None
    failure: str = ""
    asked: bool = True
    diverged: bool = False

    @property
    def worked(self) -> bool:
        """Whether the client carried out its task, even if its update is not used."""
        return not math.isnan(self.loss)

    @classmethod
    def failed(cls, reason: str, *, size: int = 0, asked: bool = True, diverged: bool = False) -> "ClientResult":
        """The result of a task that failed; `size` bytes may have come all the same."""
        return cls(failure=reason, size=size, asked=asked, diverged=diverged)
