"""Which node serves which client, as the nodes themselves say when they are asked."""

import logging
import time
from collections.abc import Iterable

from flwr.app import Message
from flwr.serverapp import Grid

from feddst.engines.base import Failure
from feddst.engines.flower.letters import hello_letter, read_introduction
from feddst.engines.flower.post import Post
from feddst.errors import FlowerError
from feddst.experiment.wording import counted

log = logging.getLogger(__name__)

LOOK_EVERY = 2.0
"""Seconds between two looks for new nodes."""


class Nodes:
    """Asks every new node which client it is. `images` is where it notes how many images each client says it has."""

    def __init__(self, grid: Grid, post: Post, clients: int, images: dict[int, int], ttl: float) -> None:
        self._grid = grid
        self._post = post
        self._clients = clients
        self._ttl = ttl
        self._node_of: dict[int, int] = {}
        self._asked: dict[str, int] = {}
        self._known: set[int] = set()
        self._looked = float("-inf")
        self._images = images

    def of(self, client: int) -> int | None:
        """The node that serves a client now."""
        return self._node_of.get(client)

    def gather(self, patience: float) -> None:
        """Wait until every client is there, or, after so many seconds, go on with those that are."""
        end = time.monotonic() + patience
        while len(self._node_of) < self._clients and time.monotonic() < end:
            self.look()
            self.take(self._post.collect(self._asked))
            self._post.pause()
        if not self._node_of:
            raise FlowerError(f"none of {counted(self._clients, 'client')} has come within {patience:g} s")
        if len(self._node_of) < self._clients:
            log.warning("going on with %d of %d clients", len(self._node_of), self._clients)

    def look(self) -> None:
        """Ask who is new; at most every few seconds."""
        if time.monotonic() < self._looked + LOOK_EVERY:
            return
        self._looked = time.monotonic()
        there = set(self._grid.get_node_ids())
        self._node_of = {client: node for client, node in self._node_of.items() if node in there}
        new = there - self._known
        self._known = there
        sent = self._post.send([hello_letter(node, self._ttl) for node in sorted(new)])
        self._asked |= {letter: node for letter, node in zip(sent, sorted(new), strict=True) if letter}

    @property
    def unanswered(self) -> list[str]:
        """Letters to new nodes that are still to be answered."""
        return list(self._asked)

    def take(self, messages: Iterable[Message]) -> None:
        """Note who has introduced himself."""
        for message in messages:
            node = self._asked.pop(message.metadata.reply_to_message_id, None)
            if node is not None:
                self._note(node, message)

    def _note(self, node: int, message: Message) -> None:
        said = read_introduction(message)
        if isinstance(said, Failure):
            log.warning("node %d cannot be used: %s", node, said.reason)
        elif said.client >= self._clients:
            log.warning("node %d says it is client %d, but there are %d", node, said.client, self._clients)
        elif said.images < 1:
            log.warning("node %d, client %d, has no images", node, said.client)
        else:
            before = self._node_of.get(said.client)
            if before is not None and before != node:
                log.warning("node %d takes the place of node %d as client %d", node, before, said.client)
            self._node_of[said.client] = node
            self._images[said.client] = said.images
