"""All that a report shows, as plain JSON: the page's scripts draw it, and nothing else."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from feddst import __version__
from feddst.core.metric import Metric
from feddst.report.curves import Axis, against, axes, kept
from feddst.report.entries import Entry, group
from feddst.report.life import SHARES, Layer, MaskLife, crowds, mask_life
from feddst.report.provenance import whose_in_words
from feddst.report.settings import beyond_commands, commands, report_command, settings
from feddst.report.sources import FoundRun, Source, find
from feddst.report.standings import Basis, basis, caption, cell, headline, notes, size, table, whole
from feddst.report.traffic import Parts, traffic
from feddst.runtime.metrics import ACCURACY, Row, is_known
from feddst.runtime.wording import counted, duration, percent
from feddst.studies.plots import Band, spread_in_words

WORST_POINTS = 120


def collect(paths: Sequence[Path]) -> tuple[list[Source], list[Entry]]:
    """The sources at the paths, and the entries of their runs."""
    sources = [find(path) for path in paths]
    return sources, group(sources)


def content(paths: Sequence[Path]) -> dict[str, Any]:
    """The report on the runs at these paths."""
    sources, entries = collect(paths)
    found, known = basis(sources, entries), axes(entries)
    main = _main_axis(found, known)
    lines = table(entries, found)
    return {
        "version": __version__,
        "title": ", ".join(_title(path) for path in paths),
        "data": "; ".join(dict.fromkeys(_data(source) for source in sources)),
        "headline": headline(entries, found, main),
        "spread": _spread(entries),
        "axes": [_axis(axis, found, axis is main) for axis in known],
        "axis": main.key if main is not None else "rounds",
        "metric": _metric(found.metric),
        "entries": [_entry(entry, known, found) for entry in entries],
        "table": {"caption": caption(entries, found), "lines": lines, "notes": notes(lines, entries)},
        "settings": [asdict(setting) for setting in settings(entries)],
        "commands": {"runs": commands(sources), "report": report_command(paths), "note": beyond_commands(sources)},
    }


def _title(path: Path) -> str:
    return path.resolve().name or str(path)


def _data(source: Source) -> str:
    """The data of the runs in words, and their network if it was the user's own."""
    return source.data or "; ".join(dict.fromkeys(_data_of(run) for run in source.runs))


def _data_of(run: FoundRun) -> str:
    dataset, clients, partition = (run.config.get(f"data.{name}", "?") for name in ("dataset", "clients", "partition"))
    if not run.made_with.own:
        return f"{dataset}, {clients} clients ({partition})"
    return f"{whose_in_words(run.made_with)}, {clients} clients"


def _main_axis(found: Basis, known: Sequence[Axis]) -> Axis | None:
    """The kind of upload that caps are on; None where runs do not have it."""
    wanted = "measured" if found.accounting == "measured" else "formula"
    return next((axis for axis in known if axis.key == wanted), None)


def _spread(entries: Sequence[Entry]) -> str:
    most = max(entry.evaluated for entry in entries)
    return spread_in_words(most) if most > 1 else "one seed"


def _axis(axis: Axis, found: Basis, main: bool) -> dict[str, Any]:
    caps = [{"x": _number(cap.gib * 2**30 / axis.scale), "label": cap.label} for cap in found.caps] if main else []
    return {"key": axis.key, "title": axis.title, "unit": axis.unit, "caps": caps if found.given else []}


def _entry(entry: Entry, known: Sequence[Axis], found: Basis) -> dict[str, Any]:
    sent, life = traffic(entry), mask_life(entry)
    cap = found.last_given
    reached = whole(entry, found) if cap is None else cell(entry, found, cap.gib)
    return {
        "label": entry.label,
        "seeds": entry.seeds,
        "unfinished": entry.unfinished,
        "best": str(replace(reached, short=False, partial=False)),
        "best_of": "best of the whole run" if cap is None else f"best with {cap.label} of upload",
        "facts": _facts(entry),
        "paths": [str(run.path) for run in entry.runs],
        **_curves(entry, known, found.metric),
        "worst": _worst(entry, found.metric),
        "traffic": {"up": _parts(sent.up), "down": _parts(sent.down), "rounds": _number(sent.rounds)},
        "masks": None if life is None else _masks(life),
        "clients": [
            {
                "round": each.round,
                "counts": each.counts,
                "mean": _score(each.mean, found.metric),
                "worst": None if each.worst is None else _score(each.worst, found.metric),
                **({} if each.span == SHARES else {"span": each.span}),
            }
            for each in crowds(entry)
        ],
        "details": any(run.details for run in entry.runs),
    }


def _facts(entry: Entry) -> list[str]:
    """A few words on the runs: how far they went, with what, and how long that took."""
    ends = entry.ends
    if not ends:
        return ["no round yet"]
    facts = [
        f"{size(mean(row.upload_bytes for row in ends) / 2**20)} up",
        counted(round(mean(row.round for row in ends)), "round"),
    ]
    rows = [row for row in ends if isinstance(row, Row)]
    if rows:
        facts.append(_density(rows))
        facts.append(duration(mean(_seconds(run.rows) for run in entry.runs if run.rows)))
    if len(entry.runs) > 1:
        facts.append(counted(len(entry.runs), "seed"))
    return facts


def _density(rows: Sequence[Row]) -> str:
    """The models' final density: of prunable weights, and of all where that is known."""
    prunable = f"density {percent(mean(row.density for row in rows), 0)}"
    everything = [row.density_all for row in rows if row.density_all is not None]
    return f"{prunable} ({percent(mean(everything), 0)} of all weights)" if everything else prunable


def _seconds(rows: Iterable[Any]) -> float:
    return float(sum(row.seconds for row in rows if isinstance(row, Row)))


def _curves(entry: Entry, known: Sequence[Axis], metric: Metric) -> dict[str, Any]:
    """A curve for each axis; those that differ in nothing but their places share a band."""
    bands: list[dict[str, Any]] = []
    places: dict[str, dict[str, Any]] = {}
    for axis in known:
        found = against(entry, axis)
        drawn = _band(found, metric, several=len(entry.runs) > 1)
        if drawn not in bands:
            bands.append(drawn)
        places[axis.key] = {"x": _numbers(found.upload), "band": bands.index(drawn)}
    return {"curves": places, "bands": bands}


def _band(found: Band, metric: Metric, *, several: bool) -> dict[str, Any]:
    spread = {"low": _shown(found.low, metric), "high": _shown(found.high, metric)} if several else {}
    return {"mean": _shown(found.mean, metric), **spread}


def _worst(entry: Entry, metric: Metric) -> dict[str, Any]:
    """The worst tenth of the clients by round, the mean over seeds that have it."""
    scores: dict[int, list[float]] = {}
    for run in entry.runs:
        for row in run.rows:
            if is_known(row.score_worst):
                scores.setdefault(row.round, []).append(metric.shown(row.score_worst))
    rounds = sorted(scores)
    shown = [rounds[i] for i in kept(len(rounds), WORST_POINTS)]
    return {"x": shown, "mean": _shown((mean(scores[number]) for number in shown), metric)}


def _masks(life: MaskLife) -> dict[str, Any]:
    first = life.maps[0][1] if life.maps else None
    return {
        "seed": life.seed,
        "together": life.together,
        "layers": [_layer(layer) for layer in life.layers],
        "inputs": None
        if first is None
        else {
            "layer": first.layer,
            "side": life.side,
            "maps": [
                {"round": number, "rows": [[round(1000 * share) for share in row] for row in shown.rows]}
                for number, shown in life.maps
            ],
        },
    }


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "size": layer.size,
        "round": [step.round for step in layer.steps],
        "active": [step.active for step in layer.steps],
        "entered": [step.entered for step in layer.steps],
        "left": [step.left for step in layer.steps],
        "apart": [_share(step.apart) for step in layer.steps],
    }


def _parts(parts: Parts) -> dict[str, int]:
    return {name: round(value) for name, value in asdict(parts).items()}


def _share(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _score(value: float, metric: Metric) -> float:
    """A score as it was stored, not as it is shown."""
    return round(value, 4) if metric.percent else _number(value)


def _shown(values: Iterable[float], metric: Metric) -> list[float]:
    """Scores as they are shown."""
    return [round(float(value), 2) if metric.percent else _number(value) for value in values]


def _metric(metric: Metric) -> dict[str, Any]:
    """What the page must know of the metric."""
    return {
        "name": metric.name,
        "title": metric.name.capitalize() if metric == ACCURACY else metric.name,
        "heading": metric.heading,
        "percent": metric.percent,
        "higher": metric.higher_is_better,
    }


def _numbers(values: Iterable[float]) -> list[float]:
    return [_number(value) for value in values]


def _number(value: float | np.floating[Any]) -> float:
    """Five digits are more than a page shows."""
    short = float(f"{float(value):.5g}")
    return int(short) if short.is_integer() else short
