"""Bytes: what travels, what Flower adds, files, and codecs."""

import statistics

from scripts.tables.blocks import block
from scripts.tables.records import MIB, bench, source, with_caption

METHODS = {"fedavgm": "FedAvgM", "randommask": "RandomMask", "feddst": "FedDST"}
BITS = {"float32": "32 bits", "q4": "4 bits"}


@block
def slow_links() -> str:
    """What it takes to reach an accuracy over slow links."""
    made = bench("slow-network")
    rows = [[f"to {100 * made['target']:.0f} %", "rounds", "time", "up", "down"]]
    for run in made["runs"]:
        end = run["curve"][-1]
        sent = [f"{end[way] / MIB:.1f} MiB" for way in ("up", "down")]
        title = f"{METHODS[run['method']]}, {BITS[run['values']]}"
        rows.append([title, f"{end['round']}", f"{end['seconds']:.0f} s", *sent])
    link = made["link"]
    rates = (
        f"{link['up'] / 1e6:.0f} Mbit/s up, {link['down'] / 1e6:.0f} Mbit/s down, {1000 * link['round_trip']:.0f} ms"
    )
    about = f"{made['nodes']} nodes behind links of {rates}; one run of each; bytes that the kernel counted"
    return with_caption(rows, f"{about}. From {source('slow-network')}.")


@block
def flower_bytes() -> str:
    """Bytes of payloads, and bytes on the line."""
    made = bench("flower-bytes")
    rows = [
        [
            "bytes",
            "up, by the rows",
            "up, on the line",
            "down, by the rows",
            "down, on the line",
            "more a message, up",
            "down",
        ]
    ]
    for case in made["cases"]:
        told = [f"{case[who][way]:,}" for way in ("up", "down") for who in ("said", "seen")]
        told += [f"{case['over_a_message'][way]:,.0f}" for way in ("up", "down")]
        rows.append([f"{case['method']}, {case['values']}", *told])
    return with_caption(
        rows, f"{made['nodes']} nodes, {made['rounds']} rounds, with TLS. From {source('flower-bytes')}."
    )


@block
def flower_rounds() -> str:
    """The time of a round in which nothing is done."""
    made = bench("flower-rounds")
    titles = {"own": "feddst", "flower": "Flower's loop, without evaluation", "flower-evaluate": "Flower's loop"}
    rows = [["an empty round", "seconds"]]
    rows += [[title, f"{made['mean_seconds'][key]:.2f}"] for key, title in titles.items()]
    return with_caption(rows, f"{made['nodes']} nodes, means. From {source('flower-rounds')}.")


@block
def exported_files() -> str:
    """Files of one trained model."""
    rows = [["file", "bytes", "of dense", "accuracy", "scores move by"]]
    for file in bench("export-sizes")["files"]:
        plain = file["format"] == "safetensors" or file["values"] == "float32"
        title = f"`{file['format']}{'' if plain else ' --values ' + file['values']}`"
        told = [f"{file['bytes']:,}", f"{file['of_dense']:.2f}", f"{100 * file['accuracy']:.2f} %"]
        rows.append([title, *told, f"{file['largest_change']:.2g}"])
    about = "One run of 40 rounds; accuracy on all test images of the model loaded from each file"
    return with_caption(rows, f"{about}. From {source('export-sizes')}.")


@block
def coders(network: str, what: str = "") -> str:
    """How other coders do on the same masks and values."""
    rows = [["what", "coder", "bytes", "of the entropy", "encode [ms]", "decode [ms]"]]
    for row in bench("wire-coders")["rows"]:
        if row["network"] == network and what in row["what"]:
            times = [f"{row[way]:.3g}" for way in ("encode_ms", "decode_ms")]
            rows.append(
                [row["what"], row["coder"], f"{row['bytes']:,}", f"{row['bytes'] / row['entropy']:.3f}", *times]
            )
    return with_caption(rows, f"On one core. From {source('wire-coders')}.")


@block
def codec_bytes() -> str:
    """Bytes of one update with each codec."""
    body: dict[str, list[str]] = {}
    levels = []
    for row in bench("wire-bench")["values"]:
        if row["network"] == "mnist-cnn":
            levels.append(f"S = {row['level']:g}")
            name = row["codec"] + (" deflate" if row["packing"] == "deflate" else "")
            body.setdefault(f"`{name}`", []).append(f"{row['sizes']['payload']:,}")
    rows = [["codec", *dict.fromkeys(levels)], *([name, *told] for name, told in body.items())]
    return with_caption(
        rows, f"Bytes of one update of the MNIST network whose mask has not moved. From {source('wire-bench')}."
    )


@block
def codec_accuracy() -> str:
    """What a hundred rounds reach with each codec."""
    rows = [["codec", "seeds", "after the last round", "best", "MiB up"]]
    names = {"feddst": "float32", "feddst-q4": "q4", "feddst-q2": "q2"}
    for name, codec in names.items():
        found = bench(f"mnist-100-rounds/{name}")
        sent = statistics.mean(curve[-1]["upload_bytes"] for curve in found["curves"].values()) / MIB
        best = f"{statistics.mean(found['best']):.1f} ± {statistics.stdev(found['best']):.1f}"
        after = f"{found['mean']:.1f} ± {found['std']:.1f}"
        rows.append([f"`{codec}`", f"{len(found['seeds'])}", after, best, f"{sent:.1f}"])
    sources = "; ".join(f"{codec}: {source(f'mnist-100-rounds/{name}')}" for name, codec in names.items())
    return with_caption(rows, f"MNIST (shards), FedDST, S = 0.8, 100 rounds. {sources}.")
