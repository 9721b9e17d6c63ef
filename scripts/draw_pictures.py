"""Draws the pictures of docs/how.md from what that page's own Python blocks compute.

    python scripts/draw_pictures.py [FOLDER]

Each SVG file says in words, in its description, what it shows: tests compare that with the page. Needs feddst[report].
"""

import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/how.md"
INK, PALE, KEPT, GONE, NEW, PAPER = "#1d2a35", "#dfe4e8", "#2f6f9f", "#c8553d", "#3a8f5c", "#fbfaf7"
STYLE: dict[Any, Any] = {"svg.hashsalt": "feddst", "font.family": "DejaVu Sans", "font.size": 10.5, "text.color": INK}

Values = dict[str, Any]
"""What the page's blocks left behind, by name."""


def page_values() -> Values:
    """Run the page's blocks, one after another."""
    names: Values = {"__name__": "how"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, PAGE.name, "exec"), names)
    return names


def draw_round(values: Values, path: Path) -> None:
    """The round: what the server and the clients do, and what goes between them."""
    figure, axes = _canvas(10, 5.2)
    _box(axes, 0.2, 1.7, 2.0, 1.9, "Server", ("weights θ, mask m,", "a budget a layer"), KEPT)
    clients = (3.65, 2.0, 0.35)
    for number, y in enumerate(clients):
        title = f"Client {number + 1}: its own images"
        _box(axes, 4.15, y, 2.9, 1.25, title, ("train E epochs on θ⊙m", "every ΔR rounds: drop, grow"), NEW)
        _arrow(axes, (2.2, 2.65), (4.15, y + 0.62))
        _arrow(axes, (7.05, y + 0.62), (8.0, 2.65))
    _box(axes, 8.0, 2.15, 1.8, 1.0, "Average", ("over those", "who hold a weight"), KEPT)
    _box(axes, 8.0, 0.35, 1.8, 1.0, "Prune", ("each layer back", "to its budget"), KEPT)
    _arrow(axes, (8.9, 2.15), (8.9, 1.35))
    axes.plot([8.9, 8.9, 1.2, 1.2], [0.35, 0.02, 0.02, 1.6], color=INK, linewidth=1.4)
    _arrow(axes, (1.2, 1.5), (1.2, 1.7))
    axes.text(
        2.62, 4.45, "broadcast\nvalues, and the mask\nwhere it is new", ha="center", va="center", fontsize=10, color=INK
    )
    axes.text(8.55, 4.3, "upload\nvalues, and the mask\nif it moved", ha="center", va="center", fontsize=10, color=INK)
    axes.text(5.0, 0.1, "the next round's θ and m", ha="center", fontsize=10, color=INK)
    axes.set(xlim=(0, 10), ylim=(-0.1, 5.1))
    _save(figure, path, describe_round(values))


def describe_round(values: Values) -> str:
    """The round in words."""
    return (
        "A round: the server broadcasts values and, where it is new, the mask; clients train on their own images and "
        "every ΔR rounds drop and grow; they upload values and the mask if it moved; the server averages each weight "
        "over those who hold it and prunes each layer back to its budget."
    )


def draw_readjustment(values: Values, path: Path) -> None:
    """Four matrices: the trained weights, what is dropped, the gradient, and what has grown."""
    weights, gradient, before, after = (values[name].tolist() for name in ("weights", "gradient", "before", "after"))
    adjusted = values["adjusted"].tolist()
    figure, axes = _canvas(12, 3.6)
    titles = (
        "1  trained: 6 active",
        "2  drop the 2 smallest",
        "3  gradients elsewhere",
        "4  grow the 2 largest, at 0",
    )
    for step, title in enumerate(titles):
        left = 0.15 + step * 3.0
        axes.text(left, 3.45, title, fontsize=11, color=INK, weight="bold")
        for row in range(3):
            for column in range(4):
                was, now = before[row][column], after[row][column]
                dropped, grown = was and not now, now and not was
                colour, words = PALE, ""
                if step in (0, 1) and was:
                    colour, words = (GONE if step and dropped else KEPT), f"{weights[row][column]:.1f}"
                if step == 2:
                    kept = was and now
                    colour = KEPT if kept else NEW if grown else PALE
                    words = "" if kept else f"{gradient[row][column]:.1f}"
                if step == 3 and now:
                    colour, words = (NEW if grown else KEPT), f"{adjusted[row][column]:.1f}"
                _cell(axes, left + column * 0.66, 2.5 - row * 0.66, 0.62, colour, words.replace("-", "−"))
    _legend(axes, 0.15, 0.35, ((KEPT, "active"), (GONE, "dropped"), (NEW, "grown"), (PALE, "inactive")))
    axes.set(xlim=(0, 12), ylim=(0.1, 3.8))
    _save(figure, path, describe_readjustment(values))


def describe_readjustment(values: Values) -> str:
    """The matrices in words."""
    names = ("weights", "gradient", "adjusted")
    told = "; ".join(f"{name} {_rows(values[name].tolist())}" for name in names)
    return f"A readjustment: {told}; mask after {_rows(values['after'].int().tolist())}"


def draw_average(values: Values, path: Path) -> None:
    """Three clients' weights, their mean, and what pruning leaves."""
    held, sent, images = values["held"].tolist(), values["sent"].tolist(), values["images"]
    mean, new = _averaged(values)
    figure, axes = _canvas(10, 4.6)
    rows = [(f"client {c + 1}, {n} images", held[c]) for c, n in enumerate(images)]
    for column in range(6):
        axes.text(3.75 + column * 1.02, 4.55, f"weight {column}", ha="center", fontsize=10, color=INK)
    for number, (title, line) in enumerate(rows):
        y = 3.75 - number * 0.72
        axes.text(0.1, y + 0.3, title, va="center", fontsize=11, color=INK)
        for column, value in enumerate(line):
            there = value == value
            colour = PALE if not there else KEPT if sent[column] else NEW
            _cell(axes, 3.3 + column * 1.02, y, 0.62, colour, _number(value) if there else "", wide=0.92)
    for title, y, kept in (("mean over holders", 1.3, None), ("the 3 largest stay", 0.45, new)):
        axes.text(0.1, y + 0.3, title, va="center", fontsize=11, color=INK, weight="bold")
        for column in range(6):
            stays = mean[column] != 0 if kept is None else kept[column] != 0
            words = _number(mean[column]) if kept is None or stays else ""
            colour = (KEPT if sent[column] else NEW) if stays else PALE
            _cell(axes, 3.3 + column * 1.02, y, 0.62, colour, words, wide=0.92)
    axes.plot([0.1, 9.4], [2.1, 2.1], color=INK, linewidth=1)
    legend = ((KEPT, "in the mask that was sent"), (NEW, "grown by a client"), (PALE, "held by nobody, or pruned"))
    _legend(axes, 0.1, -0.2, legend, wide=3.1)
    axes.set(xlim=(0, 9.6), ylim=(-0.4, 4.8))
    _save(figure, path, describe_average(values))


def describe_average(values: Values) -> str:
    """The weights in words."""
    mean, new = _averaged(values)
    clients = "; ".join(
        f"n {n}: {_rows([line])}" for n, line in zip(values["images"], values["held"].tolist(), strict=True)
    )
    return f"The sparse average: {clients}; mean {_rows([mean])}; pruned {_rows([new])}"


def draw_payload(values: Values, path: Path) -> None:
    """Updates to scale: the dense one beside sparse ones, then the small ones enlarged."""
    from matplotlib import pyplot

    pyplot.rcParams.update(STYLE)
    figure, panels = pyplot.subplots(2, 1, figsize=(10, 5), facecolor=PAPER, height_ratios=(3, 4))
    bars = payload_bars(values)
    _bars(panels[0], bars[:3], "MNIST network: 261,840 weights and biases")
    _bars(panels[1], bars[3:], "The same in 4 and 2 bits a weight, on another scale")
    figure.legend(*panels[1].get_legend_handles_labels(), loc="lower center", ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    _save(figure, path, describe_payload(values))


def payload_bars(values: Values) -> list[tuple[str, int, int, int]]:
    """What each update is called, and the bytes of its header with padding, mask and values."""
    dense = sum(parameter.numel() for parameter in values["module"].parameters())
    weights = sum(values["budgets"].values())
    biases = dense - sum(layer.size for layer in values["layers"])
    bars = [("dense, float32", 48, 0, 4 * dense)]
    for (codec, moved), (whole, mask) in values["sizes"].items():
        plain = values["sizes"][codec, False][0] - 48
        assert codec != "float32" or plain == 4 * (weights + biases)
        bars.append((f"S = 0.8, {codec}" + (", mask moved" if moved else ""), whole - mask - plain, mask, plain))
    return bars


def describe_payload(values: Values) -> str:
    """The bytes in words."""
    told = (
        f"{name}: header {header:,}, mask {mask:,}, values {plain:,}"
        for name, header, mask, plain in payload_bars(values)
    )
    return "Bytes of an update. " + "; ".join(told)


PICTURES: dict[str, tuple[Callable[[Values, Path], None], Callable[[Values], str]]] = {
    "round": (draw_round, describe_round),
    "readjustment": (draw_readjustment, describe_readjustment),
    "average": (draw_average, describe_average),
    "payload": (draw_payload, describe_payload),
}
"""How each picture is drawn, and what its file says of it."""


def _averaged(values: Values) -> tuple[list[float], list[float]]:
    mean, new = values["averaged"](values["held"])
    return mean.tolist(), new.params["layer"].tolist()


def _canvas(width: float, height: float) -> tuple[Any, Any]:
    """An empty figure without axes."""
    from matplotlib import pyplot

    pyplot.rcParams.update(STYLE)
    figure, axes = pyplot.subplots(figsize=(width, height), facecolor=PAPER)
    axes.axis("off")
    return figure, axes


def _box(
    axes: Any, x: float, y: float, width: float, height: float, title: str, lines: Sequence[str], colour: str
) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.12", facecolor="white")
    shape.set(edgecolor=colour, linewidth=2)
    axes.add_patch(shape)
    axes.text(x + width / 2, y + height - 0.25, title, ha="center", va="center", weight="bold", fontsize=11, color=INK)
    axes.text(
        x + width / 2, y + (height - 0.35) / 2, "\n".join(lines), ha="center", va="center", fontsize=10, color=INK
    )


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.4})


def _cell(axes: Any, x: float, y: float, size: float, colour: str, words: str, wide: float = 0.0) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), wide or size, size, facecolor=colour, edgecolor="none"))
    ink = INK if colour == PALE else "white"
    axes.text(x + (wide or size) / 2, y + size / 2, words, ha="center", va="center", fontsize=11.5, color=ink)


def _legend(axes: Any, x: float, y: float, entries: Sequence[tuple[str, str]], wide: float = 1.7) -> None:
    for number, (colour, words) in enumerate(entries):
        _cell(axes, x + number * wide, y, 0.24, colour, "")
        axes.text(x + number * wide + 0.36, y + 0.12, words, va="center", fontsize=10.5, color=INK)


def _bars(axes: Any, bars: Sequence[tuple[str, int, int, int]], title: str) -> None:
    """Horizontal bars of header, mask and values, each with its bytes beside it."""
    axes.set_facecolor(PAPER)
    for place, (_, *parts) in enumerate(reversed(bars)):
        start = 0
        for size, colour, label in zip(
            parts, (GONE, NEW, KEPT), ("header (48 bytes) and padding: too thin to see", "mask", "values"), strict=True
        ):
            axes.barh(place, size, left=start, color=colour, height=0.62, label=None if place else label)
            start += size
        header, mask, plain = parts
        told = f"{start:,} bytes = {header}" + (f" + {mask:,}" if mask else "") + f" + {plain:,}"
        axes.text(start, place, "  " + told, va="center", fontsize=10, color=INK)
    axes.set_yticks(range(len(bars)), [name for name, *_ in reversed(bars)])
    axes.set_xlim(0, 1.45 * max(sum(parts) for _, *parts in bars))
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.tick_params(length=0, labelbottom=False, colors=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _rows(rows: Sequence[Sequence[float]]) -> str:
    return " / ".join(
        " ".join("·" if value != value else f"{round(value, 2) + 0.0:g}" for value in row) for row in rows
    )


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.1f}".replace("-", "−")


def _save(figure: Any, path: Path, description: str) -> None:
    from matplotlib import pyplot

    figure.savefig(path, facecolor=PAPER, bbox_inches="tight", metadata={"Description": description, "Date": None})
    pyplot.close(figure)


def main(words: Sequence[str]) -> int:
    """Draw all pictures into the folder that is named, or docs/pictures."""
    folder = Path(words[0]) if words else ROOT / "docs/pictures"
    folder.mkdir(parents=True, exist_ok=True)
    values = page_values()
    for name, (draw, _) in PICTURES.items():
        draw(values, folder / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
