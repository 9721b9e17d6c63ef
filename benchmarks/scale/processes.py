"""A case in processes of its own: one for the server, fresh, and one for its clients."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar

from benchmarks.scale.cases import Case
from benchmarks.scale.clients import answer_questions
from feddst.errors import TrainingError

T = TypeVar("T")

LIMIT = 600
"""Seconds after which a case has failed."""

_SERVERS = multiprocessing.get_context("forkserver")
_SERVERS.set_forkserver_preload(["benchmarks.scale.server", "benchmarks.scale.sums"])


def apart(action: Callable[[Case, Connection], T], case: Case) -> T:
    """What `action` gives in a fresh process, where its second argument leads to a case's clients."""
    near, far = _SERVERS.Pipe()
    report, reported = _SERVERS.Pipe(duplex=False)
    clients = _SERVERS.Process(target=answer_questions, args=(case, far), daemon=True)
    server = _SERVERS.Process(target=_report, args=(action, case, near, reported), daemon=True)
    for process in (clients, server):
        process.start()
    for end in (near, far, reported):
        end.close()
    try:
        if not report.poll(LIMIT):
            raise TrainingError(f"{case}: the server was not done after {LIMIT} s")
        found: T = report.recv()
        return found
    except EOFError:
        raise TrainingError(f"{case}: the server's process ended before it was done") from None
    finally:
        report.close()
        for process in (server, clients):
            process.kill()
            process.join()


def _report(action: Callable[[Case, Connection], T], case: Case, pipe: Connection, report: Connection) -> None:
    report.send(action(case, pipe))
