"""Which node serves which client, by the nodes' own answers."""

import logging
import time

from flwr.app import Message
from flwr.serverapp import Grid

from feddst.errors import FlowerError, WireError
from feddst.flower.message_client import Answer, MessageClient
from feddst.flower.messages import hello_message, read_introduction
from feddst.runtime.wording import counted

log = logging.getLogger(__name__)

LOOK_EVERY = 2.0
"""Seconds between two looks for new nodes."""
AGAIN = 30.0
"""Seconds after which a node that has sent no usable introduction is asked again."""


class Nodes:
    """Asks every new node which client it is. It notes in `images` how many images each client says it has."""

    def __init__(
        self, grid: Grid, messages: MessageClient, clients: int, images: dict[int, int], *, most_images: int, ttl: float
    ) -> None:
        self._grid = grid
        self._messages = messages
        self._clients = clients
        self._most_images = most_images
        self._ttl = ttl
        self._client_of: dict[int, int] = {}
        self._node_of: dict[int, int] = {}
        self._asked: dict[str, tuple[int, float]] = {}
        self._when: dict[int, float] = {}
        self._looked = float("-inf")
        self._images = images

    def of(self, client: int) -> int | None:
        """The node that serves a client now; of several, the last to come."""
        return self._node_of.get(client)

    def gather(self, patience: float) -> None:
        """Wait until every client has a node; after `patience` seconds, go on with those that have one."""
        end = time.monotonic() + patience
        self.look()
        while len(self._node_of) < self._clients and time.monotonic() < end:
            self._messages.pause()
            self.look()
        if not self._node_of:
            raise FlowerError(f"none of {counted(self._clients, 'client')} has come within {patience:g} s")
        if len(self._node_of) < self._clients:
            log.warning(
                "going on with %d of %d clients, each of which needs a node: start more, or set data.clients to "
                "how many there are (flwr run's simulation has two; more with --federation-config 'num-supernodes=%d')",
                len(self._node_of),
                self._clients,
                self._clients,
            )

    def look(self) -> None:
        """Ask new nodes, at most every few seconds, and read their answers."""
        now = time.monotonic()
        if now >= self._looked + LOOK_EVERY:
            self._looked = now
            self._ask(set(self._grid.get_node_ids()), now)
        for answers in self._messages.collect(list(self._asked)):
            for answer in answers:
                self._hear(answer)

    def doubt(self, client: int) -> None:
        """Ask a client's node again which client it serves."""
        node = self._node_of.get(client)
        if node is not None:
            del self._client_of[node]
            self._when.pop(node, None)
            self._looked = float("-inf")
            self._settle()

    def _ask(self, there: set[int], now: float) -> None:
        self._client_of = {node: client for node, client in self._client_of.items() if node in there}
        self._when = {node: when for node, when in self._when.items() if node in there and when > now - AGAIN}
        # A slow node may still answer the first question.
        self._asked = {
            name: (node, when) for name, (node, when) in self._asked.items() if node in there and when > now - self._ttl
        }
        new = sorted(there - self._when.keys() - self._client_of.keys())
        sent = self._messages.send([hello_message(node, self._ttl) for node in new])
        self._asked |= {name: (node, now) for name, node in zip(sent, new, strict=True) if name}
        self._when |= dict.fromkeys(new, now)
        self._settle()

    def _hear(self, answer: Answer) -> None:
        """Note a node's introduction, unless it was not asked for or has come before."""
        node, _ = self._asked.pop(answer.name, (None, None))
        if node is None:
            return
        if answer.message is None:
            log.warning("node %d cannot be used: %s", node, answer.fault)
        else:
            self._note(node, answer.message)

    def _settle(self) -> None:
        self._node_of = {client: node for node, client in self._client_of.items()}

    def _note(self, node: int, message: Message) -> None:
        try:
            said = read_introduction(message)
        except WireError as error:
            log.warning("node %d cannot be used: %s", node, error)
            return
        if said.client >= self._clients:
            log.warning("node %d says it is client %d, but there are %d", node, said.client, self._clients)
        elif not 1 <= said.images <= self._most_images:
            log.warning("node %d, client %d, says it has %d images", node, said.client, said.images)
        else:
            before = self._node_of.get(said.client)
            if before is not None and before != node:
                log.warning("node %d takes the place of node %d as client %d", node, before, said.client)
            self._client_of[node] = said.client
            self._images[said.client] = said.images
            self._node_of[said.client] = node
