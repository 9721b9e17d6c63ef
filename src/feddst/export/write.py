"""`feddst.export`: what a run has trained, in a file that others can use, with a card beside it."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from feddst.data import Dataset, Federation
from feddst.data.adapters import Source
from feddst.errors import ModelError, OptionError
from feddst.export.card import Facts, card
from feddst.export.dense import safetensors_bytes, torch_bytes
from feddst.export.description import Description
from feddst.export.graph import onnx_bytes, refuse_without_onnx
from feddst.export.origin import Origin, origin_of
from feddst.export.sparse import sparse_bytes
from feddst.export.trained import Trained, scores_of, trained_by, trained_in
from feddst.models import ModuleSource
from feddst.options import hint, one_of
from feddst.runtime import Result
from feddst.runtime.session import checked_data
from feddst.runtime.storage import write_atomically

Format = Literal["safetensors", "torch", "onnx", "sparse"]
Values = Literal["float32", "bfloat16", "float16", "q8", "q4"]

SUFFIXES: dict[Format, str] = {"safetensors": ".safetensors", "torch": ".pt", "onnx": ".onnx", "sparse": ".fdst"}
CARD = ".md"


@dataclass(frozen=True)
class Exported:
    """A file, its card, and how many bytes it has; `dense_size` is what all values take, zeros included.

    `notes` are caveats: that it is not the whole result of a run, or not of its end.
    """

    path: Path
    card: Path
    size: int
    dense_size: int
    notes: tuple[str, ...] = ()


def export(
    run: str | Path | Result,
    format: Format = "safetensors",
    out: str | Path | None = None,
    *,
    model: ModuleSource | None = None,
    data: Dataset | Federation | tuple[Source, Source] | None = None,
    client: int | None = None,
    values: Values = "float32",
) -> Exported:
    """Write what a run has trained to a file, with a card beside it. Nothing that exists is overwritten.

    `run` is a run's directory or what `feddst.run` returned. `out` is `model` with the format's ending in the run's
    directory unless you name a file. `model` and `data` are what the run was given in Python, if anything: without
    them the file does not say what network it is for, and ONNX needs both. `client` takes a client's own model, for
    methods that end with one a client. `values` rounds the numbers of a sparse file.
    """
    _check(run, format, values)
    data = checked_data(data)
    place = _directory(run)
    path = _destination(out, place, format, client)
    if format == "onnx":
        refuse_without_onnx()
    trained = _trained(run, place, client)
    if model is None and isinstance(run, Result):
        model = run.model
    origin = origin_of(trained, model, data)
    trained = _in_order(trained, origin)
    content, check = _content(trained, origin, format, values)
    facts = Facts(trained, origin, path, format, len(content), _version(), values, check)
    beside = path.with_name(path.name + CARD)
    write_atomically(path, content)
    write_atomically(beside, card(facts).encode())
    return Exported(path, beside, len(content), trained.dense_bytes, _notes(facts))


def _check(run: str | Path | Result, format: str, values: str) -> None:
    """Raise at the first argument that is not allowed."""
    if not isinstance(run, str | Path | Result):
        raise OptionError(f"run must be a run's directory or a feddst.Result, got {type(run).__name__}")
    if format not in SUFFIXES:
        raise OptionError(f"format must be {one_of(SUFFIXES)}, got {format!r}{hint(format, SUFFIXES)}")
    if values not in get_args(Values):
        raise OptionError(f"values must be {one_of(get_args(Values))}, got {values!r}{hint(values, get_args(Values))}")
    if values != "float32" and format != "sparse":
        raise OptionError(f"values must be float32 where format is {format}, got {values!r}")


def _directory(run: str | Path | Result) -> Path | None:
    return run.path if isinstance(run, Result) else Path(run)


def _destination(out: str | Path | None, place: Path | None, format: Format, client: int | None) -> Path:
    """The file to write; raises if it or its card exists already."""
    if out is None and place is None:
        raise OptionError("out must name a file: the run was kept in memory and has no directory")
    if out is not None:
        path = Path(out)
    else:
        assert place is not None
        path = place / (("model" if client is None else f"client-{client}") + SUFFIXES[format])
    if not path.name:
        raise OptionError(f"out must name a file, got {path}")
    for wanted in (path, path.with_name(path.name + CARD)):
        if os.path.lexists(wanted):
            raise OptionError(f"{wanted} exists already: name another file with out (--out on the command line)")
    if out is not None and not path.parent.is_dir():
        raise OptionError(f"out must be in a directory that exists, got {path}")
    return path


def _trained(run: str | Path | Result, place: Path | None, client: int | None) -> Trained:
    if place is not None:
        return trained_in(place, client)
    assert isinstance(run, Result)
    if client is not None:
        raise OptionError(f"client must be left out: a run kept in memory has no clients' models, got {client}")
    return trained_by(run)


def _in_order(trained: Trained, origin: Origin) -> Trained:
    """The same with its tensors in the module's order, where that is known."""
    if origin.module is None:
        return trained
    params = {name: trained.params[name] for name, _ in origin.module.named_parameters()}
    return replace(trained, params=params)


def _content(trained: Trained, origin: Origin, format: Format, values: Values) -> tuple[bytes, str]:
    """The file's bytes, and how they were checked."""
    text = Description(
        feddst=_version(),
        method=trained.config.method,
        round=trained.round,
        sparsity=trained.sparsity,
        scores=scores_of(trained.evaluated),
        metric=trained.metric,
        client=trained.client,
        network=origin.network,
        inputs=origin.inputs,
    ).text()
    if format == "onnx":
        if origin.module is None or origin.inputs is None:
            missing = "model=…, data=…" if origin.module is None else "data=…"
            raise ModelError(f"format onnx needs what the run was given in Python: feddst.export(…, {missing})")
        if origin.inputs.several:
            raise ModelError(f"format onnx is for models with one input, this one takes {origin.inputs.several}")
        return onnx_bytes(origin.module, origin.inputs, text)
    if format == "sparse":
        numbers = {"round": trained.round, "seed": trained.config.seed}
        return sparse_bytes(trained.params, trained.buffers, trained.masks, text, values=values, **numbers), ""
    write = safetensors_bytes if format == "safetensors" else torch_bytes
    return write(trained.tensors, text), ""


def _notes(facts: Facts) -> tuple[str, ...]:
    trained, origin = facts.trained, facts.origin
    found = [trained.note] if trained.note else []
    if not trained.finished:
        found.append(f"the run is not complete: this is its checkpoint after round {trained.round}")
    if origin.network is None and facts.format != "onnx":
        found.append("the file does not say what network it is for: feddst.load needs the model with it")
    return tuple(found)


def _version() -> str:
    from feddst import __version__  # not known yet while this package is being imported

    return __version__
