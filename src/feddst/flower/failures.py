"""How often clients have failed: those that fail again and again are left out for a while."""

import logging

log = logging.getLogger(__name__)


class FailureTracker:
    """After `failures` in a row a client rests for `rest` rounds."""

    def __init__(self, failures: int, rest: int) -> None:
        self._failures = failures
        self._rest = rest
        self._in_a_row: dict[int, int] = {}
        self._resting: dict[int, int] = {}
        self._round = 0

    def next_round(self) -> None:
        """A round begins."""
        self._round += 1
        self._resting = {client: until for client, until in self._resting.items() if until >= self._round}

    def rests(self, client: int) -> bool:
        """Whether a client is left out of this round."""
        return client in self._resting

    def succeeded(self, client: int) -> None:
        """Record a reply that could be used."""
        self._in_a_row.pop(client, None)

    def failed(self, client: int) -> None:
        """Record a failed reply."""
        self._in_a_row[client] = self._in_a_row.get(client, 0) + 1
        if self._in_a_row[client] >= self._failures and self._rest:
            log.warning("client %d failed %d times in a row: %d rounds without it", client, self._failures, self._rest)
            self._resting[client] = self._round + self._rest
            self._in_a_row.pop(client)
