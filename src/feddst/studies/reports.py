"""The files of a comparison that follow from its runs: curves as JSON, the table as Markdown, a picture.

`comparison.json` is there from the start and marks the directory as a comparison's. All three are written again
whenever the comparison is run.
"""

import json
import logging
import shlex
from pathlib import Path
from typing import Any

from feddst.errors import CheckpointError, OptionError
from feddst.options import as_words, flatten
from feddst.runtime.config import RunConfig, differences, options_to_store, stored_options, usual_for
from feddst.runtime.metrics import Row
from feddst.runtime.storage import occupied, write_atomically
from feddst.studies.comparison import CompareConfig, Comparison, Curve
from feddst.studies.plots import accuracy_against_upload
from feddst.studies.tables import markdown

CURVES = "comparison.json"
TABLE = "comparison.md"
PICTURE = "accuracy.png"
_FORMAT = 1
_COLUMNS = (
    "round",
    "accuracy",
    "accuracy_worst",
    "accuracy_global",
    "loss",
    "upload_bytes",
    "download_bytes",
    "upload_bits",
    "download_bits",
)

log = logging.getLogger(__name__)


def refuse_foreign(path: Path, config: CompareConfig) -> None:
    """Raise unless a comparison with this config can live in the directory `path`."""
    if not occupied(path):
        return
    if not (path / CURVES).is_file():
        raise CheckpointError(f"{path} is not empty and holds no comparison: choose another directory")
    try:
        stored = stored_options(json.loads((path / CURVES).read_text())["config"]["base"])
    except OptionError as error:
        raise CheckpointError(f"{path / CURVES}: {error}") from None
    except (OSError, ValueError, TypeError, KeyError):
        raise CheckpointError(f"{path / CURVES} is damaged, or not a comparison's") from None
    changed = differences(stored, config.base)
    if changed:
        raise CheckpointError(f"{path} holds a comparison with another config: {'; '.join(changed)}")


def begin(comparison: Comparison) -> None:
    """Make the comparison's directory, if it is not there yet."""
    path = comparison.path
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot create {path}: {error.strerror or error}") from None
    if not (path / CURVES).exists():
        _write_json(comparison)


def write_reports(comparison: Comparison) -> None:
    """Write the three files, replacing those of the same comparison."""
    _write_json(comparison)
    write_atomically(comparison.path / TABLE, markdown(comparison, picture=PICTURE).encode())
    try:
        accuracy_against_upload(comparison, comparison.path / PICTURE)
    except ImportError:
        log.warning("%s was not drawn, because matplotlib is missing: pip install 'feddst[report]'", PICTURE)


def command(config: CompareConfig) -> str:
    """The command line that stands for a config: what differs from the defaults."""
    own = {"methods": config.methods, "seeds": config.seeds} | ({"caps": config.caps} if config.caps else {})
    usual = flatten(RunConfig())
    over = {name for entry in config.entries() for name in {**usual_for(entry.method), **entry.implied}} & config.given
    changed = {name: value for name, value in flatten(config.base).items() if value != usual[name] or name in over}
    return shlex.join(["feddst", "compare", *as_words({**own, **changed})])


def _write_json(comparison: Comparison) -> None:
    config = comparison.config
    content = {
        "format": _FORMAT,
        "command": command(config) if comparison.reproducible else "",
        "data": comparison.data,
        "finished": comparison.finished,
        "config": {
            "methods": list(config.methods),
            "seeds": list(config.seeds),
            "caps": list(config.caps),
            "base": options_to_store(config.base),
        },
        "curves": [_curve(curve) for curve in comparison.curves],
    }
    write_atomically(comparison.path / CURVES, (json.dumps(content, indent=1) + "\n").encode())


def _curve(curve: Curve[Row]) -> dict[str, Any]:
    """A curve by columns, one number for each evaluation; `metrics.jsonl` of its run has every round."""
    evaluated = [row for row in curve.rows if row.accuracy is not None]
    return {"label": curve.label, "seed": curve.seed, "run": curve.path.name} | {
        name: _column(evaluated, name) for name in _COLUMNS
    }


def _column(rows: list[Row], name: str) -> list[Any]:
    return [getattr(row, name) for row in rows]
