"""What clients send in a round: read, checked, priced and noted, or refused."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from feddst.clients import Failure, Reply
from feddst.core import ClientState, Update, count_active
from feddst.data import Federation, Roster
from feddst.engines import Tally
from feddst.errors import ExcessError, TrainingError, WireError
from feddst.runtime.config import RunConfig
from feddst.runtime.costs import Ledger
from feddst.runtime.rounds import NAMED, Arrival, Given, OpenRound
from feddst.wire import Asked, MaskHistory, decode_update, mask_bytes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reception:
    """Takes in what comes in the round that is open; nothing that a client sends is a reason to end the run."""

    opened: OpenRound
    config: RunConfig
    federation: Federation | Roster
    ledger: Ledger
    history: MaskHistory

    def receive(self, place: int, reply: Reply | Failure) -> bool:
        """Take in one client's reply, in whatever order replies come. Returns whether it could be used."""
        given = self.opened.given[place]
        if isinstance(reply, Failure):
            self._fail(place, reply)
            return False
        if not given.images:  # it was not known when the round began
            given = self.opened.given[place] = replace(given, images=self.federation.num_images(given.client))
        loss = reply.loss if given.plan.train else None
        try:
            update = self._read(reply.payload, given)
        except WireError as error:
            excess = isinstance(error, ExcessError)
            self._refuse(place, len(reply.payload), loss, reply.state, str(error), diverged=excess)
            return False
        own = None if update.masks is None else count_active(update.masks)
        sizes, bits = (len(reply.payload), mask_bytes(reply.payload)), self._price(given, own)
        self._take(place, Arrival(given.client, *sizes, bits, update.weight, loss, reply.state), own)
        return True

    def receive_late(self, size: int) -> None:
        """An answer came when its round had ended: it is left alone, and counted."""
        self.opened.late += 1
        self.ledger.up.add_unused(size)

    def receive_all(self, tally: Tally) -> None:
        """Take in what came of a cohort."""
        self.opened.total = tally.total
        for place, (given, receipt) in enumerate(zip(self.opened.given, tally.receipts, strict=True)):
            if isinstance(receipt, Failure):
                self._fail(place, receipt)
                continue
            loss, bits = receipt.loss if given.plan.train else None, self._price(given, receipt.own)
            if receipt.refusal:
                self._refuse(place, receipt.bytes, loss, receipt.state, receipt.refusal, diverged=True)
                continue
            sizes = receipt.bytes, receipt.mask_bytes
            self._take(place, Arrival(given.client, *sizes, bits, receipt.weight, loss, receipt.state), receipt.own)

    def _read(self, payload: bytes, given: Given) -> Update:
        """The update in a payload, added to the round's sum."""
        downlink = self.opened.downlink
        most = given.plan.local.weight(given.trained_on)
        asked = Asked(downlink.reference, given.plan, given.client, most, self.config.wire)
        update = decode_update(payload, asked)
        try:
            self.opened.total.add(downlink.unrounded(update))
        except TrainingError as error:
            raise WireError(str(error)) from None  # the sum is full, whoever has filled it
        return update

    def _price(self, given: Given, own: Mapping[str, int] | None) -> int:
        """What an update costs by formula: as a rule the same as the one before it."""
        last = self.opened.price
        if last is None or last[0] != given.plan or last[1] != own:
            bits = self.ledger.upload_price(self.opened.downlink.reference, given.plan, own)
            self.opened.price = last = (given.plan, own, bits)
        return last[2]

    def _fail(self, place: int, failure: Failure) -> None:
        """Note that a client has not answered as it should, or could not be asked; what it computed is not known."""
        given = self.opened.given[place]
        if failure.sent:
            self._note_refusal(given.client, failure.reason, diverged=failure.diverged)
            self.opened.arrivals[place] = Arrival(given.client, failure.size, 0, 0, 0, None, ClientState())
            return
        log.warning("round %d: client %d was not asked: %s", self.opened.number, given.client, failure.reason)
        self.opened.unsent[place] = f"client {given.client} was not asked: {failure.reason}"

    def _refuse(
        self, place: int, size: int, loss: float | None, state: ClientState, reason: str, *, diverged: bool
    ) -> None:
        """Note an update that cannot be used."""
        client = self.opened.given[place].client
        self._note_refusal(client, reason, diverged=diverged)
        self._take(place, Arrival(client, size, 0, 0, 0, loss, state), None)

    def _note_refusal(self, client: int, reason: str, *, diverged: bool) -> None:
        say = log.warning if len(self.opened.refusals) < NAMED else log.info
        say("round %d: the update of client %d was refused: %s", self.opened.number, client, reason)
        self.opened.refusals.append(reason if f"client {client} " in reason else f"client {client}: {reason}")
        self.opened.diverged += diverged
        self.history.forget(client)

    def _take(self, place: int, arrival: Arrival, own: Mapping[str, int] | None) -> None:
        """Note what arrived, and what it took to make it; only of a ticket the client trains with masks of its own."""
        given = self.opened.given[place]
        active = self.opened.downlink.reference.active if own is None or not given.plan.own_layers else own
        self.ledger.charge_training(given.plan, active, given.trained_on)
        self.opened.arrivals[place] = arrival
