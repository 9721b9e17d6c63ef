"""`feddst export`: a run's trained model, as a file for others."""

from dataclasses import dataclass
from pathlib import Path

from feddst.cli.arguments import Arguments
from feddst.cli.screen import say
from feddst.errors import OptionError
from feddst.export import Format, Values, export
from feddst.options import option, updated

NO_CLIENT = -1


@dataclass(frozen=True)
class ExportArguments:
    """What to write, and where to."""

    format: Format = option(
        "safetensors", "dense checkpoints for PyTorch and others, a graph for ONNX, or a sparse file for feddst.load"
    )
    out: str = option("", "the file; empty: model.safetensors, .pt, .onnx or .fdst in the run's directory")
    values: Values = option("float32", "how a sparse file holds its numbers; all but float32 round them")
    client: int = option(
        NO_CLIENT, "this client's own model, for methods that end with one a client; -1: the server's", at_least=-1
    )


def export_command(given: Arguments) -> int:
    """Carry out `feddst export RUN`."""
    if not given.words:
        raise OptionError("export needs the directory of a run")
    asked = updated(ExportArguments(), given.values)
    client = None if asked.client == NO_CLIENT else asked.client
    made = export(Path(given.words[0]), asked.format, asked.out or None, client=client, values=asked.values)
    for note in made.notes:
        say(f"note: {note}")
    dense = f"; dense it would be {made.dense_size:,}" if asked.format == "sparse" else ""
    print(f"model  {made.path}: {made.size:,} bytes{dense}")
    print(f"card   {made.card}")
    return 0
