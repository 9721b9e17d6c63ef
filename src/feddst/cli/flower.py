"""`feddst flower …`: the same runs on Flower, in this process, on this machine, or as an app for any federation."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from feddst.cli.arguments import Arguments
from feddst.cli.interruption import Interruption
from feddst.cli.logs import LogArguments, asked_logs, log_words, say_places
from feddst.cli.places import command, fresh
from feddst.cli.progress import Reporter
from feddst.cli.run import describe
from feddst.cli.screen import say
from feddst.cli.settings import RunArguments, gather
from feddst.early_interrupt import INTERRUPTED
from feddst.errors import FlowerError, OptionError
from feddst.logs import Several
from feddst.options import Option, check_list, flatten, option, options_of, updated
from feddst.runtime import RunConfig
from feddst.runtime.config import config_of, refuse_ineffective
from feddst.runtime.storage import RunDirectory, occupied

FEDERATION: dict[str, Any] = {"checkpoint_every": 1}
"""Defaults that differ from those of `feddst run`: a federation may be killed at any time."""


@dataclass(frozen=True)
class SimulateArguments(RunArguments):
    """Where the options come from, where results go, and what carries messages."""

    backend: Literal["in-process", "ray"] = option(
        "in-process", "in-process: one client after another, no set-up; ray: Flower's own simulation"
    )


@dataclass(frozen=True)
class DeployArguments(RunArguments):
    """Where the options come from, where results go, and how many nodes there are."""

    nodes: int = option(3, "SuperNodes to start: so many clients there are, and so many in a round", at_least=1)
    insecure: bool = option(False, "without TLS and without keys of nodes")
    minutes: float = option(60.0, "give up after so many minutes", above=0)
    logs: str = option("", "directory for what the processes say, and their keys; empty: a temporary one")


@dataclass(frozen=True)
class KeysArguments:
    """What the keys are for."""

    hosts: tuple[str, ...] = option(("localhost", "127.0.0.1"), "names and addresses by which nodes reach the server")
    nodes: int = option(3, "SuperNodes to make keys for", at_least=1)
    days: int = option(365, "days for which the certificate is valid", at_least=1)


def simulate_options() -> list[Option]:
    """Every option of `feddst flower simulate`."""
    return options_of(SimulateArguments) + options_of(LogArguments) + options_of(RunConfig) + _flower_options()


def deploy_options() -> list[Option]:
    """Every option of `feddst flower deploy-local`."""
    return options_of(DeployArguments) + options_of(RunConfig) + _flower_options()


def app_command(given: Arguments) -> int:
    """Carry out `feddst flower app`."""
    _need_flower()
    from feddst.flower.settings import USUAL, write_app

    if not given.words:
        raise OptionError("flower app needs a directory to write the app to")
    path = Path(given.words[0]) / "pyproject.toml"
    if path.exists():
        raise OptionError(f"{path} exists already: choose another directory")
    write_app(path.parent)
    nodes = f"--federation-config 'num-supernodes={USUAL['data.clients']}'"
    ray = "" if find_spec("ray") else "; needs Ray: pip install 'flwr[simulation]'"
    print(f"{path}\nrun it in Flower's simulation, on this machine{ray}\n  flwr run {path.parent} --stream {nodes}")
    print(f"or on a federation that ~/.flwr/config.toml names\n  flwr run {path.parent} NAME --stream")
    return 0


def keys_command(given: Arguments) -> int:
    """Carry out `feddst flower keys`."""
    _need_flower()
    from feddst.flower.deployment.certificates import LOOPBACK, make_certificates, make_node_key

    if not given.words:
        raise OptionError("flower keys needs a directory to write the keys to")
    asked, folder = updated(KeysArguments(), given.values), Path(given.words[0])
    check_list("hosts", asked.hosts)
    if occupied(folder):
        raise OptionError(f"{folder} is not empty: choose another directory")
    # The server's own processes reach each other by loopback.
    made = make_certificates(folder, list(dict.fromkeys([*asked.hosts, *LOOPBACK])), asked.days)
    print(f"for the server: {made.certificate}, {made.key}\nfor all: {made.authority}")
    for node in range(asked.nodes):
        key = make_node_key(folder, f"node-{node}")
        print(f"for node {node}: {key.private}; register {key.public}")
    return 0


def simulate_command(given: Arguments) -> int:
    """Carry out `feddst flower simulate`."""
    _need_flower()
    from feddst.flower.config import FlowerConfig
    from feddst.flower.simulation import simulate

    config, path, resume = _config(given, {})
    flower, backend = updated(FlowerConfig(), _flower_values(given)), given.values.get("backend", "in-process")
    logs = asked_logs(given)
    opening = f"{config.method} with {config.data.clients} nodes of Flower ({backend}); writing to {path}"
    say_places(logs, path)
    interruption = Interruption()
    again = command("flower", "simulate", "--resume", "--out", str(path), *log_words(given))
    try:
        with interruption, Several(Reporter(interruption, opening), *logs) as watcher:
            simulate(config, flower, backend=backend, out=path, resume=resume, watcher=watcher)
    except KeyboardInterrupt:
        return _stopped(path, again)
    return _ended(config, path, again)


def deploy_command(given: Arguments) -> int:
    """Carry out `feddst flower deploy-local`."""
    _need_flower()
    from feddst.flower.deployment.local import LocalDeployment
    from feddst.flower.deployment.private import make_private
    from feddst.flower.deployment.signals import Signals
    from feddst.flower.settings import as_run_config, write_app
    from feddst.flower.simulation import CLIENTS

    wanted = given.values.get("nodes", 3)
    if "data.clients" in given.values:
        raise OptionError("data.clients is what --nodes says: give only that")
    config, path, resume = _config(given, {"data.clients": wanted, "cohort.size": wanted})
    nodes = config.data.clients
    if given.values.get("nodes", nodes) != nodes:
        raise OptionError(f"the run in {path} has {nodes} nodes, got {wanted}")
    again = command("flower", "deploy-local", "--resume", "--out", str(path))
    logs = given.values.get("logs", "")
    seconds = 60 * given.values.get("minutes", 60.0)
    values = as_run_config({**flatten(config), **{f"flower.{n}": v for n, v in _flower_values(given).items()}})
    values |= {"out": str(path.resolve()), "resume": resume}
    own = {index: {"state-dir": str(path.resolve() / CLIENTS)} for index in range(nodes)}
    if logs and occupied(Path(logs)):
        raise OptionError(f"logs: {logs} is not empty: choose another directory")
    with Signals() as signals, tempfile.TemporaryDirectory(prefix="feddst-") as made:
        folder = Path(logs) if logs else Path(made)
        make_private(folder)
        app = write_app(folder / "app").parent
        say(f"starting a SuperLink and {nodes} SuperNodes on loopback; writing to {path}")
        try:
            secure = not given.values.get("insecure", False)
            with LocalDeployment(folder, nodes, secure=secure, node_config=own, signals=signals) as deployment:
                end = deployment.run_app(app, values, seconds=seconds, on_line=_say_progress)
        except KeyboardInterrupt:
            return _stopped(path, again)
    if not end.completed:
        raise FlowerError(f"the run {end.status}: {end.details or 'its log says why'}")
    return _ended(config, path, again)


def _say_progress(line: str) -> None:
    if line.strip():
        say(line.rstrip())


def _need_flower() -> None:
    if find_spec("flwr") is None:
        raise FlowerError("this needs Flower: pip install 'feddst[flower]'")


def _flower_options() -> list[Option]:
    """The options of the server's group."""
    from feddst.flower.config import FlowerConfig

    return [replace(opt, name=f"flower.{opt.name}") for opt in options_of(FlowerConfig)]


def _flower_values(given: Arguments) -> dict[str, Any]:
    return {name.removeprefix("flower."): value for name, value in given.values.items() if name.startswith("flower.")}


def _config(given: Arguments, fixed: dict[str, Any]) -> tuple[RunConfig, Path, bool]:
    """The run's config, its directory, and whether to resume there."""
    options: Sequence[Option] = options_of(RunConfig)
    settings = gather(given, "run", options)
    resume, out = bool(given.values.get("resume")), given.values.get("out", "")
    if resume and not out:
        raise OptionError("--resume needs --out, the directory of the run to go on with")
    if resume:
        config = updated(RunDirectory(Path(out)).stored_config(), settings.values)
    else:
        config = config_of({**FEDERATION, **fixed, **settings.values})
    refuse_ineffective([config], settings.asked_for(options))
    config.check()
    path = Path(out) if out else fresh(f"flower-{config.method}-{config.data.dataset}-seed{config.seed}")
    if resume:
        RunDirectory(path).refuse_other(config)
    else:
        RunDirectory(path).refuse_occupied()
    return config, path, resume


def _stopped(path: Path, again: str) -> int:
    begun = RunDirectory(path).config.is_file()
    say(f"stopped; go on with\n  {again}" if begun else "stopped before the first round")
    return INTERRUPTED


def _ended(config: RunConfig, path: Path, again: str) -> int:
    summary = RunDirectory(path).finished()
    if summary is None:
        say(f"stopped; go on with\n  {again}")
        return INTERRUPTED
    print(describe(summary, config, path))
    return 0
