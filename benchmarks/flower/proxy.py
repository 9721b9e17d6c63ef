"""A TCP proxy on loopback that counts the bytes each way, and can be as slow as a link."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

from feddst.flower.deployment.ports import HOST

_CHUNK = 65536
_QUEUE = 1024
_BURST = 0.05
_SLICE = 0.01


@dataclass(frozen=True)
class Link:
    """One direction: `rate` in bit/s, shared by all connections, None for no limit; one-way `delay` in seconds."""

    rate: float | None = None
    delay: float = 0.0


@dataclass
class Traffic:
    """Bytes of payload: `up` came from the client, `down` from the server."""

    up: int = 0
    down: int = 0


@dataclass
class _Lane:
    """One direction of all connections. A token bucket: `_BURST` seconds' worth may be taken at once."""

    link: Link
    free_at: float = 0.0

    @property
    def chunk(self) -> int:
        """How much to take from a connection at a time: little enough for others to have their turn."""
        return _CHUNK if self.link.rate is None else min(_CHUNK, max(1500, int(self.link.rate * _SLICE / 8)))

    async def take(self, size: int) -> None:
        """Wait until this many bytes have gone through."""
        if self.link.rate is not None:
            now = asyncio.get_running_loop().time()
            self.free_at = max(self.free_at, now - _BURST) + size * 8 / self.link.rate
            await asyncio.sleep(self.free_at - now)


class _Ends(NamedTuple):
    """Where one direction of a connection comes from, and where it goes to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


@dataclass(frozen=True)
class _Pipe:
    """One direction of one connection. What comes in waits for its turn in the lane, and then for the delay."""

    ends: _Ends
    lane: _Lane
    counts: tuple[Traffic, ...]
    name: str
    under_way: asyncio.Queue[tuple[float, bytes]] = field(default_factory=lambda: asyncio.Queue(_QUEUE))

    async def carry(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take())
            group.create_task(self._deliver())

    async def _take(self) -> None:
        data = b"-"
        while data:
            data = await self.ends.reader.read(self.lane.chunk)
            for count in self.counts:
                setattr(count, self.name, getattr(count, self.name) + len(data))
            await self.lane.take(len(data))
            await self.under_way.put((asyncio.get_running_loop().time() + self.lane.link.delay, data))

    async def _deliver(self) -> None:
        data = b"-"
        while data:
            due, data = await self.under_way.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            self.ends.writer.write(data)
            await self.ends.writer.drain()
        self.ends.writer.write_eof()


class CountingProxy:
    """While this is entered, what connects to `address`, here on `host` and `port`, is connected to `target`.

    `total` and `connections` count payload: the headers of TCP and IP, about 3 %, are not in them. Slowness is that
    of the payload too: a connection is made without delay.
    """

    def __init__(
        self, target: str, *, up: Link | None = None, down: Link | None = None, host: str = HOST, port: int = 0
    ) -> None:
        far, _, far_port = target.rpartition(":")
        self._target = (far, int(far_port))
        self._near = (host, port)
        self._lanes = (_Lane(up or Link()), _Lane(down or Link()))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="feddst-proxy", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.total = Traffic()
        self.connections: list[Traffic] = []
        self.address = ""

    def __enter__(self) -> "CountingProxy":
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, plan: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(plan, self._loop).result()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connect, *self._near)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())

    async def _close(self) -> None:
        assert self._server is not None
        await asyncio.sleep(0.05)  # asyncio loses sight of a connection that is being accepted as the server closes
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # for the sockets to be closed too

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(OSError, ExceptionGroup, asyncio.CancelledError):  # one end that breaks off breaks off the other
            async with _closing(writer):
                far_reader, far_writer = await asyncio.open_connection(*self._target)
                async with _closing(far_writer):
                    await self._exchange(_Ends(reader, far_writer), _Ends(far_reader, writer))
        self._tasks.discard(task)

    async def _exchange(self, up: _Ends, down: _Ends) -> None:
        own = Traffic()
        self.connections.append(own)
        async with asyncio.TaskGroup() as group:
            group.create_task(_Pipe(up, self._lanes[0], (self.total, own), "up").carry())
            group.create_task(_Pipe(down, self._lanes[1], (self.total, own), "down").carry())


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close a connection once all has been delivered, or break it off on the way out of an error."""
    try:
        yield
        writer.close()
        await writer.wait_closed()
    finally:
        writer.transport.abort()
