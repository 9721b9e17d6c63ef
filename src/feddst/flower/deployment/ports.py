"""Free ports on loopback."""

import socket
from contextlib import ExitStack

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on at the moment, all different. They are not reserved: use them soon."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def answers(port: int) -> bool:
    """Whether something listens on this port."""
    with socket.socket() as one:
        one.settimeout(1.0)
        return one.connect_ex((HOST, port)) == 0
