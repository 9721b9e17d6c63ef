"""Rounds whose updates are not used: which model a run goes back to, and when it gives up.

A round with too few updates leaves the model as it was. If most of the clients that answered have diverged, the model
they were sent cannot be trained: the run goes back to the last one that could. Such rounds do not count, unless every
client that was asked answered as it should; after a few in a row the run ends as failed.
"""

import logging
from dataclasses import dataclass, replace

from feddst.core import ServerState
from feddst.errors import TrainingError
from feddst.runtime.rounds import NAMED, Round
from feddst.runtime.wording import counted

log = logging.getLogger(__name__)

PATIENCE = 3
"""After this many failed rounds in a row the run ends."""


@dataclass
class Recovery:
    """The last `sound` model, one that most clients could train, and how rounds went.

    `counted` is how many rounds did not fail, `in_vain` how many have failed since the last of these.
    """

    sound: ServerState | None = None
    counted: int = 0
    in_vain: int = 0

    def note_use(self, before: ServerState) -> None:
        """Note that the updates of a round that began with this state were averaged."""
        self._note(before.round, failed=False)
        if before.round:
            self.sound = before

    def after(self, why: str, ended: Round, before: ServerState, *, patient: bool) -> ServerState:
        """The state after a round whose updates were not used, for the reason `why`; raises if the run cannot go on.

        If not `patient`, a round without any update ends the run while no model is there to go back to, since clients
        would do the same again.
        """
        self._note(before.round, failed=bool(ended.refusals or ended.missing()))
        if not before.round:
            again = "; start it again" if patient else ""
            asked = "the client that is to choose the first mask sent nothing that could be used"
            raise TrainingError(f"round 0: {asked}: there is no mask to begin with{again}{_reasons(ended)}")
        hopeless = not patient and self.sound is None and not ended.total.updates and bool(ended.refusals)
        if hopeless or self.in_vain >= PATIENCE:
            times = f", as did the {counted(self.in_vain - 1, 'round')} before it" if self.in_vain > 1 else ""
            raise TrainingError(f"{why}: the round came to nothing{times}{_reasons(ended)}")
        if not ended.mostly_diverged or self.sound is None:
            log.warning("%s: the model stays as it is", why)
            return before.next()
        log.warning("%s: the model is again that of round %d, the last that could be trained", why, self.sound.round)
        device = next(iter(before.params.values())).device
        return replace(self.sound.to(device), round=before.round).next()

    def _note(self, round: int, *, failed: bool) -> None:
        """Count a round."""
        self.in_vain = self.in_vain + 1 if failed else 0
        self.counted += round > 0 and not failed


def why_unused(ended: Round, least: int) -> str:
    """Why a round's updates are not averaged; empty if they are. `least` is how many there must be."""
    if ended.mostly_diverged:
        answered = counted(len(list(ended.answers())), "client")
        return f"round {ended.number}: {ended.diverged} of the {answered} that answered diverged"
    if ended.total.updates < least:
        return f"round {ended.number} has {counted(ended.total.updates, 'update')}, fewer than min_clients ({least})"
    return ""


def _reasons(ended: Round) -> str:
    """What is known of the clients without a usable update."""
    unasked = [f"client {task.client} was not asked: {result.failure}" for task, result in ended.unasked()]
    silent = len(ended.missing()) - len(unasked)
    found = [f"{counted(silent, 'client')} did not answer in time"] if silent else []
    found += [*ended.refusals, *unasked]
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"; {'; '.join(found[:NAMED])}{more}" if found else ""
