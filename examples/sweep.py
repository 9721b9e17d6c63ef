"""Sparsity against codec: FedDST's accuracy and upload on MNIST for each pair of them, as a table and a picture.

    python examples/sweep.py
    python examples/sweep.py --levels 0.5,0.8 --codecs float32,q4 --rounds 100 --out runs/longer

Called again with the same folder, it skips runs that are finished and goes on with one that was stopped.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

import feddst


@dataclass(frozen=True)
class End:
    """What a run came to: mean client accuracy [%], and the bytes that its clients sent [MiB]."""

    accuracy: float
    upload: float


def sweep(levels: list[str], codecs: list[str], rounds: int, clients: int, out: Path) -> dict[tuple[str, str], End]:
    """The end of a run of FedDST for each level and codec, all with the same clients and initial weights."""
    pairs = [(level, codec) for level in levels for codec in codecs]
    methods = tuple(f"feddst:sparsity.level={level}:wire.values={codec}" for level, codec in pairs)
    base = feddst.configure(method="feddst", rounds=rounds, data={"clients": clients})
    comparison = feddst.compare(feddst.CompareConfig(methods=methods, base=base), out=out)
    lasts = [curve.rows[-1] for curve in comparison.curves]
    ends = [End(100 * (last.accuracy or 0), last.upload_bytes / 2**20) for last in lasts]
    return dict(zip(pairs, ends, strict=True))


def table(ends: dict[tuple[str, str], End], levels: list[str], codecs: list[str]) -> list[str]:
    """A line for each level, a column for each codec."""
    lines = ["sparsity" + "".join(f"{codec:>20}" for codec in codecs)]
    for level in levels:
        row = [ends[level, codec] for codec in codecs]
        lines.append(f"{level:8}" + "".join(f"{f'{end.accuracy:.1f} %, {end.upload:.1f} MiB':>20}" for end in row))
    return lines


def draw(ends: dict[tuple[str, str], End], levels: list[str], codecs: list[str], path: Path) -> None:
    """A line for each codec, with a point for each level."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for codec in codecs:
        row = [ends[level, codec] for level in levels]
        axes.plot([end.upload for end in row], [end.accuracy for end in row], "o-", label=codec)
        for level, end in zip(levels, row, strict=True):
            axes.annotate(f"S = {level}", (end.upload, end.accuracy), (5, -12), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    axes.margins(x=0.12, y=0.08)
    axes.set_xlabel("upload [MiB]")
    axes.set_ylabel("mean client accuracy [%]")
    axes.legend(title="codec", frameon=False)
    figure.savefig(path, dpi=150)


def words(text: str) -> list[str]:
    return text.split(",")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", type=words, default=["0.5", "0.8", "0.95"], help="sparsities, with commas between")
    parser.add_argument("--codecs", type=words, default=["float32", "q8", "q4"], help="codecs of updates' values")
    parser.add_argument("--rounds", type=int, default=20, help="of each run")
    parser.add_argument("--clients", type=int, default=400, help="among whom MNIST is divided; 20 train in a round")
    parser.add_argument("--out", type=Path, default=Path("runs/sweep"), help="where everything is written")
    chosen = parser.parse_args()
    ends = sweep(chosen.levels, chosen.codecs, chosen.rounds, chosen.clients, chosen.out)
    print(*table(ends, chosen.levels, chosen.codecs), sep="\n")
    picture = chosen.out / "sweep.png"
    draw(ends, chosen.levels, chosen.codecs, picture)
    print(f"picture  {picture}")


if __name__ == "__main__":
    main()
