"""A run's round in progress: its tasks, their results, and the sum of the updates that can be used."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from feddst.core import Aggregator, Masks, Positions, ServerState, Update, count_active
from feddst.core.tensors import movement
from feddst.errors import ExcessError, TrainingError, WireError
from feddst.wire import ClientResult, ClientTask, MaskHistory, decode_update, mask_bytes

log = logging.getLogger(__name__)

NAMED = 3
"""How many refused updates of a round are named one by one."""


@dataclass
class Round:
    """A round between its broadcast and its end; `results` are by the place of their task.

    `before` is the state it began with, at the time `began`; `begin_sum` makes an empty sum for updates under masks.
    Nothing that a client sends ends the run: an update that cannot be used is refused and named in `refusals`, and
    `diverged` counts those that diverged. The end of the round tells whether the updates were `used`, whether the
    server's masks changed (`mask_moved`), and how many weights entered and left each layer whose mask may have changed
    (`moved`).
    """

    before: ServerState
    tasks: Sequence[ClientTask]
    history: MaskHistory
    begin_sum: Callable[[Masks, Positions | None], Aggregator]
    began: float
    total: Aggregator = field(init=False)
    results: dict[int, ClientResult] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    diverged: int = 0
    used: bool = True
    late: int = 0
    open: bool = True
    mask_moved: bool = False
    moved: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total = self.empty_sum(0) if self.tasks else self.begin_sum(self.before.masks, None)

    @property
    def number(self) -> int:
        """The round's number."""
        return self.before.round

    def empty_sum(self, place: int) -> Aggregator:
        """An empty sum for updates of clients that are sent the same as the client of this task."""
        sent = self.tasks[place].sent
        return self.begin_sum(sent.broadcast.masks, sent.positions)

    def take(self, place: int, result: ClientResult) -> bool:
        """Record the result of a task; results may come in any order. Returns whether it could be used.

        The update in a payload is read, checked and added up; then only its receipt is kept.
        """
        task = self.tasks[place]
        if place in self.results or not self.open:
            raise RuntimeError(
                f"round {self.number}: a result of client {task.client} was handed in twice, or too late"
            )
        if result.payload is not None:
            result = self._read(task, result, result.payload)
        self.results[place] = result
        if not result.asked:
            log.warning("round %d: client %d was not asked: %s", self.number, task.client, result.failure)
        elif result.failure:
            self._note_refusal(task.client, result)
        return not result.failure

    def merge(self, total: Aggregator) -> None:
        """Add a partial sum, made where clients were trained."""
        if self.total.updates:
            self.total.merge(total)
        else:
            self.total = total

    def answers(self) -> Iterator[tuple[ClientTask, ClientResult]]:
        """The results of clients that were asked, in the order of places."""
        return ((self.tasks[place], result) for place, result in sorted(self.results.items()) if result.asked)

    def unasked(self) -> list[tuple[ClientTask, ClientResult]]:
        """The tasks that did not reach their clients, and why."""
        return [(self.tasks[place], result) for place, result in self.results.items() if not result.asked]

    def missing(self) -> list[int]:
        """The clients that have not answered, whether they were asked or not."""
        here = {place for place, result in self.results.items() if result.asked}
        return [task.client for place, task in enumerate(self.tasks) if place not in here]

    @property
    def mostly_diverged(self) -> bool:
        """Whether more than half of the clients that answered have diverged."""
        return 2 * self.diverged > len(list(self.answers()))

    def note_movement(self, after: Masks) -> None:
        """Compare the server's masks after the round with those before it."""
        before = self.before.masks
        self.moved = movement(before, after)
        self.mask_moved = any(map(any, self.moved.values())) or before.keys() != after.keys()

    def mean_loss(self) -> float | None:
        """The clients' mean loss by weight; None if no client trained."""
        trained = [(result.loss, result.weight) for task, result in self.answers() if task.plan.train and result.weight]
        weight = sum(weight for _, weight in trained)
        return sum(loss * weight for loss, weight in trained) / weight if weight else None

    def _read(self, task: ClientTask, answer: ClientResult, payload: bytes) -> ClientResult:
        """The receipt for a payload, whose update is added to the sum unless it is invalid."""
        receipt = partial(replace, answer, payload=None, size=len(payload))
        try:
            update = decode_update(payload, task)
            self._add(task, update)
        except WireError as error:
            return receipt(failure=str(error), diverged=isinstance(error, ExcessError))
        own = None if update.masks is None else count_active(update.masks)
        return receipt(mask_bytes=mask_bytes(payload), weight=update.weight, own=own)

    def _add(self, task: ClientTask, update: Update) -> None:
        whole, masks = task.encoder.unrounded(update), task.sent.broadcast.masks
        if whole.masks is None and masks is not self.total.masks:
            whole = replace(whole, masks=masks)
        try:
            self.total.add(whole)
        except TrainingError as error:
            raise WireError(str(error)) from None  # the sum is full, not only by this client

    def _note_refusal(self, client: int, result: ClientResult) -> None:
        say = log.warning if len(self.refusals) < NAMED else log.info
        say("round %d: the update of client %d was refused: %s", self.number, client, result.failure)
        named = f"client {client} " in result.failure
        self.refusals.append(result.failure if named else f"client {client}: {result.failure}")
        self.diverged += result.diverged
        self.history.forget(client)
