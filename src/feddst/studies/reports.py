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
from feddst.runtime.metrics import Row, known_or_none, noted
from feddst.runtime.storage import occupied, write_atomically
from feddst.studies.comparison import CompareConfig, Comparison, Curve
from feddst.studies.plots import score_against_upload
from feddst.studies.tables import markdown

CURVES = "comparison.json"
TABLE = "comparison.md"
_FORMAT = 1
_SCORES = ("", "_worst", "_global")
_COLUMNS = (
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
    picture = picture_of(comparison)
    write_atomically(comparison.path / TABLE, markdown(comparison, picture=picture).encode())
    try:
        score_against_upload(comparison, comparison.path / picture)
    except ImportError:
        log.warning("%s was not drawn, because matplotlib is missing: pip install 'feddst[report]'", picture)


def picture_of(comparison: Comparison) -> str:
    """The name of the picture's file."""
    return f"{comparison.metric.name}.png"


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
    evaluated = [row for row in curve.rows if row.score is not None]
    scores = [curve.metric.name + kind for kind in _SCORES]
    about = {"label": curve.label, "seed": curve.seed, "run": curve.path.name}
    columns = {name: [getattr(row, name) for row in evaluated] for name in ("round", *_COLUMNS)}
    values = {name: [known_or_none(row.value(name)) for row in evaluated] for name in scores}
    ordered = {"round": columns.pop("round"), **values, **columns}
    return noted({**about, **ordered}, curve.metric)
