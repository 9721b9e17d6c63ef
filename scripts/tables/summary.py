"""What the README and the first pages show, and what was checked."""

import re
import statistics
from collections.abc import Iterator

from feddst.runtime.wording import NOTHING
from feddst.studies.reproduce.table import difference
from scripts.tables.blocks import block
from scripts.tables.growth import papers_end, reaching
from scripts.tables.records import MIB, bench, made_by, row_of, study, with_caption, words_table
from scripts.tables.speed import PYTORCH, rounds_of

RUNS = "mnist-100-rounds"


@block
def in_short() -> str:
    """Five rows of results, each with its record and the page that explains it."""
    return words_table([["question", "measured", "more"], *_answers()])


def _answers() -> Iterator[list[str]]:
    cifar = study("table2-paper")
    for other, title in (("fedavgm", "FedAvgM, which is dense"), ("randommask", "a random mask that never moves")):
        gain = difference(cifar, "feddst", other, 16.0)
        yield [
            f"FedDST minus {title}: CIFAR-10, 16 GiB of upload",
            f"{gain} points",
            "[record](results/table2-paper/record.json), [results](docs/results.md)",
        ]
    grown = difference(study("sprout-cifar10"), "sprout-80", "randommask-80", 1.6)
    yield [
        "Sprout, a mask that grows, minus that random mask: CIFAR-10, 1.6 GiB",
        f"{grown} points",
        "[record](results/sprout-cifar10/record.json), [research](docs/research.md)",
    ]
    accuracy, cap = papers_end("mnist")
    sent = reaching(study("thrifty-mnist"), "sprout", accuracy) / MIB
    yield [
        f"Upload for the {accuracy:.2f} % that cost the paper's FedDST {cap / 2**30:g} GiB on MNIST",
        f"{sent:.1f} MiB",
        "[record](results/thrifty-mnist/record.json), [few bytes](docs/thrifty.md)",
    ]
    rounds = rounds_of("cpu-bench")
    faster = rounds[PYTORCH, 0.0]["ordinary"]["median"] / rounds["native", 0.8]["ordinary"]["median"]
    yield [
        "A round on two CPU cores with four in five weights masked, beside dense PyTorch",
        f"{faster:.1f} times as fast",
        "[record](results/cpu-bench.json), [speed](docs/speed.md)",
    ]


@block
def first_run() -> str:
    """What the quick comparison ends with."""
    made = bench("quick")
    caps = made["config"]["caps"]
    rows = [["method", *(f"{cap:g} GiB" for cap in caps), "MiB up", "MiB down"]]
    for curve in made["curves"]:
        seen = list(zip(curve["accuracy"], curve["upload_bytes"], strict=True))
        best = [100 * max(a for a, sent in seen if sent <= cap * 2**30) for cap in caps]
        ends = [curve[f"{way}_bytes"][-1] / MIB for way in ("upload", "download")]
        rows.append([curve["label"], *(f"{value:.1f}" for value in (*best, *ends))])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = (
        "  ".join(
            [row[0].ljust(widths[0]), *(word.rjust(width) for word, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )
    return "```text\n" + "\n".join(lines) + "\n```"


@block
def hundred_rounds() -> str:
    """A hundred rounds on MNIST, and what an independent implementation led to expect."""
    titles = {
        f"{RUNS}/feddst": "FedDST, paper's text",
        f"{RUNS}-native/feddst": "the same, by the compiled kernels",
        f"{RUNS}/feddst-q4": "the same, updates of 4 bits a weight",
        f"{RUNS}/feddst-q2": "the same, updates of 2 bits a weight",
        f"{RUNS}/fedavgm": "FedAvgM, paper's text",
        f"{RUNS}/feddst-published": "FedDST, published code",
    }
    rows = [["MNIST, 100 rounds", "measured", "expected", "seeds", "lowest seed", "highest", "made with"]]
    for name, title in titles.items():
        made = bench(name)
        cores = re.search(r"--workers (\d+)", made["command"])
        on = f"{cores[1]} CPU cores" if cores else made["machine"].split(", ")[-1]
        rows.append(
            [
                f"[{title}](results/{name}.json)",
                f"{made['mean']:.1f} ± {made['std']:.1f} %",
                made["expected"],
                f"{len(made['seeds'])}",
                f"{min(made['final']):.1f} %",
                f"{max(made['final']):.1f} %",
                on,
            ]
        )
    return with_caption(
        rows,
        "Mean client accuracy after the last round; expected by an independent implementation.",
        "`python scripts/mnist_100_rounds.py --engine reference results/mnist-100-rounds` makes them.",
    )


@block
def best_by_rounds() -> str:
    """The best accuracy up to a round, whatever was sent, on the same five seeds."""
    ends = (50, 100, 200, 400)
    sparse = study("sparsity-mnist")
    found = {"dense (FedAvgM)": row_of(study("table1-paper"), "fedavgm"), **{row.title: row for row in sparse.rows}}
    rows = [["MNIST", *(f"{end} rounds" for end in ends)]]
    for title, row in found.items():
        runs = [run for run in row.runs if run.seed < sparse.seeds]
        told = []
        for end in ends:
            best = [100 * max(point.score for point in run.rows if point.round <= end) for run in runs]
            reached = min(run.rows[-1].round for run in runs) >= end
            told.append(f"{statistics.mean(best):.2f} ± {statistics.stdev(best):.2f}" if reached else NOTHING)
        rows.append([title, *told])
    links = "[sparse](results/sparsity-mnist/record.json), [dense](results/table1-paper/record.json)"
    return with_caption(
        rows, f"Best mean client accuracy [%], mean ± standard deviation over {sparse.seeds} seeds: {links}."
    )


@block
def checks() -> str:
    """What was tried on purpose to break the package."""
    kills, fuzz, clean = (bench(name) for name in ("kill-and-resume", "wire-fuzz", "native-sanitizers"))
    same = sum(case["same_checkpoint"] and case["same_metrics"] for case in kills["cases"])
    rows = [["tried", "outcome", "record"]]
    rows.append(
        [
            f"a run killed with SIGKILL at {len(kills['cases'])} random moments, and resumed",
            f"the same bytes in {same} of {len(kills['cases'])}",
            _link("kill-and-resume"),
        ]
    )
    rows.append(
        [
            f"{fuzz['count']:,} mutated payloads to the decoder",
            f"{fuzz['rejected']:,} refused, {fuzz['accepted']:,} valid, {len(fuzz['failures'])} failures",
            _link("wire-fuzz"),
        ]
    )
    rows.append(
        [
            "the compiled kernels' tests under AddressSanitizer and UBSan",
            f"{clean['tests']['passed']} passed, {len(clean['findings'])} findings",
            _link("native-sanitizers"),
        ]
    )
    return words_table(rows)


def _link(name: str) -> str:
    return f"[record](results/{name}.json), {made_by(bench(name)['command'])}"
