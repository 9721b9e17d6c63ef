"""Event files for TensorBoard."""

import json
import os
import shlex
import socket
import time
from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from itertools import chain, count
from pathlib import Path
from typing import Any

from feddst.core import register
from feddst.errors import OptionError
from feddst.logs.log import Ending, Log
from feddst.logs.scalars import ALWAYS, heading, scalars
from feddst.runtime import toml
from feddst.runtime.metrics import Row
from feddst.runtime.run import Run
from feddst.runtime.storage import occupied, write_atomically

FOLDER = "tensorboard"
"""Where event files are in a run's directory."""
REMEMBERED = "tensorboard.json"
"""The file in a run's directory that says in which folder its events are, if that is elsewhere."""

_NAME = "events.out.tfevents."
"""How the names of event files begin."""


@register
class TensorBoard(Log):
    """Writes scalars by round, and the config as text.

    Without `directory` they are in each run's own, under `tensorboard`; with it, each run has a folder there, which it
    continues when it is resumed.
    """

    name = "tensorboard"

    def __init__(self, directory: str | Path | None = None) -> None:
        super().__init__()
        self._directory = None if directory is None else Path(directory)

    def check(self) -> None:
        if find_spec("tensorboard") is None:
            raise OptionError("a log for TensorBoard needs the package: pip install 'feddst[tensorboard]'")

    def place(self, out: Path) -> str:
        return shlex.join(["tensorboard", "--logdir", str(self._directory or out)])

    def started(self, runs: Sequence[Run]) -> None:
        if self._directory is None and any(run.directory is None for run in runs):
            raise OptionError("TensorBoard needs a directory, or a run with `out`")
        super().started(runs)

    def begin(self, run: Run) -> "EventFile":
        folder = self._folder(run)
        last = _last_round(folder)
        done = run.rows[-1].round if run.rows else 0
        # The last round is written again: it loses its evaluation where a run that had ended there goes on.
        book = EventFile(folder, 0 if last is None else min(last, done), purge=last is not None)
        book.write_text("config", _as_block(toml.dump(run.config, f"feddst, {run.name}")))
        return book

    def _folder(self, run: Run) -> Path:
        if self._directory is None:
            assert run.directory is not None
            return run.directory.path / FOLDER
        if run.directory is None:
            return _free(self._directory / f"{run.config.method}-seed{run.config.seed}")
        path, parent = run.directory.path.resolve(), self._directory.resolve()
        known = _remembered(path)
        if known is not None and known.parent == parent:
            return known
        folder = _free(parent / path.name)
        write_atomically(path / REMEMBERED, (json.dumps({"folder": str(folder)}) + "\n").encode())
        return folder


class EventFile:
    """A new event file beside those that are there; with `purge`, it takes the place of their rounds from `first` on.

    Nothing is kept open: each write opens the file, adds to it, and takes back what could not be written whole.
    """

    def __init__(self, folder: Path, first: int, *, purge: bool) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        self.first = first
        self._path = folder / _next_name(folder)
        begun = [Event(wall_time=time.time(), file_version="brain.Event:2")]
        if purge:
            begun.append(Event(wall_time=time.time(), step=first, session_log=SessionLog(status=SessionLog.START)))
        self._append(begun)

    def write(self, rows: Sequence[Row]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        def event(row: Row) -> Any:
            values = [Summary.Value(tag=_tag(name), simple_value=value) for name, value in scalars(row).items()]
            return Event(wall_time=time.time(), step=row.round, summary=Summary(value=values))

        self._append([event(row) for row in rows])

    def write_text(self, tag: str, text: str) -> None:
        """Add a text, in Markdown."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._append([Event(wall_time=time.time(), step=self.first, summary=text_pb(tag, text))])

    def close(self, ending: Ending) -> None:
        pass

    def _append(self, events: Sequence[Any]) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        records = BytesIO()
        for event in events:
            RecordWriter(records).write(event.SerializeToString())
        before = self._path.stat().st_size if self._path.exists() else 0
        try:
            with self._path.open("ab") as file:
                file.write(records.getvalue())
        except OSError:
            if self._path.exists():
                os.truncate(self._path, before)
            raise


def _tag(name: str) -> str:
    return f"{heading(name)}/{name}"


def _next_name(folder: Path) -> str:
    """A name that comes after those of the event files there are: TensorBoard reads them in this order."""
    stamps = [path.name.removeprefix(_NAME).partition(".")[0] for path in folder.glob(f"{_NAME}*")]
    stamp = max([int(time.time()), *(int(text) + 1 for text in stamps if text.isdecimal())])
    return f"{_NAME}{stamp:010d}.{socket.gethostname()}.{os.getpid()}"


def _last_round(folder: Path) -> int | None:
    """The last round that the event files in a folder have, None if there are none."""
    if not folder.is_dir():
        return None
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={SCALARS: 1}, purge_orphaned_data=False).Reload()
    tag = _tag(ALWAYS)
    return int(found.Scalars(tag)[-1].step) if tag in found.Tags()[SCALARS] else 0


def _remembered(run: Path) -> Path | None:
    """The folder that a run's directory names, None if it names none."""
    try:
        return Path(json.loads((run / REMEMBERED).read_text())["folder"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _free(path: Path) -> Path:
    """The path, or the first of `path-2`, `path-3`, … where there is nothing."""
    others = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(free for free in chain([path], others) if not occupied(free))


def _as_block(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return "".join(f"    {line}\n" for line in text.splitlines())
