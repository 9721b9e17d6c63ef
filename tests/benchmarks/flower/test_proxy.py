import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.flower.proxy import CountingProxy, Link, Traffic


def receive(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that sends what it got back, twice, once the client has no more to say."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as threads:

        def answer(connection: socket.socket) -> None:
            with connection:
                connection.sendall(receive(connection) * 2)
                connection.shutdown(socket.SHUT_WR)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threads.submit(answer, connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def ask(address: str, sent: bytes) -> bytes:
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return receive(connection)


def seconds_of(proxy: CountingProxy, sizes: list[int]) -> float:
    began = time.monotonic()
    with ThreadPoolExecutor() as threads:
        replies = threads.map(lambda size: ask(proxy.address, bytes(size)), sizes)
        assert [len(reply) for reply in replies] == [2 * size for size in sizes]
    return time.monotonic() - began


def test_bytes_arrive_unchanged_and_are_counted_each_way_and_for_each_connection(echo: str) -> None:
    with CountingProxy(echo) as proxy:
        assert ask(proxy.address, b"abc") == b"abcabc"
        assert ask(proxy.address, b"x" * 10**6) == b"x" * 2 * 10**6
        assert ask(proxy.address, b"") == b""
    assert proxy.connections == [Traffic(3, 6), Traffic(10**6, 2 * 10**6), Traffic(0, 0)]
    assert proxy.total == Traffic(1_000_003, 2_000_006)


def test_a_delay_is_added_once_each_way_and_does_not_limit_throughput(echo: str) -> None:
    with CountingProxy(echo, up=Link(delay=0.3), down=Link(delay=0.2)) as proxy:
        assert 0.5 <= seconds_of(proxy, [1]) < 0.8
        assert 0.5 <= seconds_of(proxy, [20 * 10**6]) < 1.5  # 60 MB: at a chunk a delay it would be minutes


def test_a_rate_holds_for_all_connections_together(echo: str) -> None:
    # 100,000 bytes are 0.8 Mbit: 0.8 s at 1 Mbit/s, less the 0.05 s that a bucket may lend.
    with CountingProxy(echo, up=Link(rate=1e6)) as proxy:
        assert 0.7 <= seconds_of(proxy, [100_000]) < 1.2
        assert 0.7 <= seconds_of(proxy, [25_000] * 4) < 1.2


def test_each_direction_has_a_rate_of_its_own(echo: str) -> None:
    # 50,000 up at 1 Mbit/s: 0.4 s. 100,000 down at 10 Mbit/s: 0.08 s.
    with CountingProxy(echo, up=Link(rate=1e6), down=Link(rate=1e7)) as proxy:
        assert 0.35 <= seconds_of(proxy, [50_000]) < 0.8


def test_small_connections_have_their_turn_beside_a_large_one(echo: str) -> None:
    with CountingProxy(echo, up=Link(rate=1e6)) as proxy, ThreadPoolExecutor() as threads:
        large = threads.submit(ask, proxy.address, bytes(200_000))  # 1.6 s
        time.sleep(0.2)
        began = time.monotonic()
        ask(proxy.address, b"small")
        assert time.monotonic() - began < 0.5
        assert not large.done()


def test_nobody_at_the_target_closes_the_connection() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with CountingProxy(f"127.0.0.1:{nobody.getsockname()[1]}") as proxy:
            assert ask(proxy.address, b"") == b""


def test_leaving_breaks_off_what_is_under_way(echo: str) -> None:
    with CountingProxy(echo, up=Link(rate=1000)) as proxy:
        host, port = proxy.address.split(":")
        connection = socket.create_connection((host, int(port)))
        connection.sendall(bytes(100_000))
    with connection:
        connection.settimeout(5)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        ask(proxy.address, b"")
