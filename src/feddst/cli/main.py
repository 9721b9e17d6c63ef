"""The program `feddst`: its commands, and which of them the first words name."""

import sys
from collections.abc import Sequence

from feddst import __version__
from feddst.cli.command import Command
from feddst.cli.compare import compare_command
from feddst.cli.data import ShowArguments, show_command
from feddst.cli.export import ExportArguments, export_command
from feddst.cli.flower import (
    KeysArguments,
    app_command,
    deploy_command,
    deploy_options,
    keys_command,
    simulate_command,
    simulate_options,
)
from feddst.cli.help import overview
from feddst.cli.listings import MethodsArguments, methods_command, presets_command
from feddst.cli.logs import LogArguments
from feddst.cli.model import model_command, model_options
from feddst.cli.options import OptionsArguments, options_command
from feddst.cli.program import carry_out, guarded
from feddst.cli.report import ANY_NUMBER, ReportArguments, report_command
from feddst.cli.reproduce import reproduce_command, reproduce_options, study_command, study_options
from feddst.cli.run import run_command
from feddst.cli.settings import Common, RunArguments
from feddst.errors import OptionError
from feddst.options import hint, one_of, options_of
from feddst.runtime import RunConfig
from feddst.studies.comparison import compare_options

AGAIN = "the same command with the same --out goes on with what was stopped"

COMMANDS: dict[str, Command] = {
    "run": Command(
        "run [--preset NAME] [--config FILE] [--out DIR] [--resume] [options]",
        "train with one method",
        lambda: options_of(RunArguments) + options_of(LogArguments) + options_of(RunConfig),
        run_command,
    ),
    "compare": Command(
        "compare [--methods A,B,…] [--seeds 0,1,…] [--caps X,Y,…] [--out DIR] [options]",
        "run several methods on the same data and compare them at upload caps",
        lambda: options_of(Common) + options_of(LogArguments) + compare_options(),
        compare_command,
        unneeded={"resume": AGAIN},
    ),
    "reproduce": Command(
        "reproduce table1|table2|table3|alpha|sparsity|schedule|compatibility [--reading paper|published] [options]",
        "make the paper's tables and figures again; the same command goes on with what was stopped",
        reproduce_options,
        reproduce_command,
        words=1,
        unneeded={"resume": AGAIN},
    ),
    "study": Command(
        "study FILE.toml [--seeds N] [--first_seed N] [options]",
        "make rows of your own as the paper's tables are made; the same command goes on with what was stopped",
        study_options,
        study_command,
        words=1,
    ),
    "report": Command(
        "report RUN… [--out FILE] [--format html|png|svg|pdf]",
        "show runs, comparisons or reproductions on one page that needs nothing else, or as figures for a paper",
        lambda: options_of(ReportArguments),
        report_command,
        words=ANY_NUMBER,
    ),
    "export": Command(
        "export RUN [--format safetensors|torch|onnx|sparse] [--out FILE] [--values float32|…] [--client N]",
        "write what a run has trained to a file that others can use, with a card beside it",
        lambda: options_of(ExportArguments),
        export_command,
        words=1,
    ),
    "flower simulate": Command(
        "flower simulate [--backend in-process|ray] [--preset NAME] [--config FILE] [--out DIR] [--resume] [options]",
        "train with one method on Flower's nodes, all of them on this machine",
        simulate_options,
        simulate_command,
    ),
    "flower deploy-local": Command(
        "flower deploy-local [--nodes N] [--preset NAME] [--config FILE] [--out DIR] [--resume] [options]",
        "start a SuperLink and SuperNodes with TLS and keys on loopback, train, and stop them",
        deploy_options,
        deploy_command,
    ),
    "flower keys": Command(
        "flower keys DIRECTORY [--hosts A,B,…] [--nodes N] [--days N]",
        "make a server's certificate and the keys of SuperNodes",
        lambda: options_of(KeysArguments),
        keys_command,
        words=1,
    ),
    "flower app": Command(
        "flower app DIRECTORY",
        "write a Flower app with every option in it, for `flwr run`",
        list,
        app_command,
        words=1,
    ),
    "data show": Command(
        "data show [--seed N] [--out PICTURE] [options]",
        "show how the images are divided among the clients",
        lambda: options_of(ShowArguments),
        show_command,
    ),
    "model show": Command(
        "model show [--preset NAME] [--config FILE] [options]",
        "show each parameter of a run's network, whether it is sparse, and what a forward pass costs",
        model_options,
        model_command,
        unneeded={"out": "nothing is written", "resume": "nothing is trained"},
    ),
    "methods": Command(
        "methods [--costs] [--markdown]",
        "list the methods: what each is and leaves behind, or what it sends and costs",
        lambda: options_of(MethodsArguments),
        methods_command,
    ),
    "presets": Command(
        "presets [NAME]", "list the presets, or the options of one of them", list, presets_command, words=1
    ),
    "options": Command(
        "options [WORD] [--markdown]",
        "list every option of every command, or those with a word in their name or meaning",
        lambda: options_of(OptionsArguments),
        lambda given: options_command(given, COMMANDS),
        words=1,
    ),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the program with these words, or those of the command line; returns the exit code."""
    return guarded(lambda: _dispatch(list(sys.argv[1:] if words is None else words)))


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview(_summaries()))
        return 0
    if words[0] == "--version":
        print(f"feddst {__version__}")
        return 0
    if words[0] in _groups() and (len(words) == 1 or words[1] in ("-h", "--help", "help")):
        print(overview(_summaries(words[0]), words[0]))
        return 0
    command, rest = _find(words)
    return carry_out("feddst", command, rest)


def _find(words: list[str]) -> tuple[Command, list[str]]:
    """The command that the first words name, and the words after them."""
    for name, command in COMMANDS.items():
        parts = name.split()
        if words[: len(parts)] == parts:
            return command, words[len(parts) :]
    given = " ".join(words[: 2 if words[0] in _groups() else 1])
    raise OptionError(f"unknown command {given!r}{hint(given, COMMANDS) or '; it must be ' + one_of(COMMANDS)}")


def _groups() -> set[str]:
    """First words that several commands may have in common."""
    return {name.split()[0] for name in COMMANDS if " " in name}


def _summaries(group: str = "") -> list[tuple[str, str]]:
    """Commands, all or those of a group, and what each does."""
    return [(name, command.summary) for name, command in COMMANDS.items() if group in ("", name.split()[0])]
