"""`feddst run`: one method."""

from collections.abc import Sequence
from pathlib import Path

from feddst.cli.arguments import Arguments
from feddst.cli.interruption import Interruption
from feddst.cli.logs import asked_logs, log_words, say_places
from feddst.cli.places import command, fresh
from feddst.cli.progress import Reporter
from feddst.cli.screen import say
from feddst.cli.settings import Settings, gather
from feddst.early_interrupt import INTERRUPTED
from feddst.engines.select import cores
from feddst.errors import OptionError
from feddst.logs import Log, Several
from feddst.options import options_of, updated
from feddst.runtime import Result, RunConfig, Summary, run
from feddst.runtime.config import config_of, refuse_ineffective
from feddst.runtime.metrics import GIB
from feddst.runtime.storage import RunDirectory
from feddst.runtime.wording import counted, duration, forward_pass, size


def run_command(given: Arguments) -> int:
    """Carry out `feddst run`."""
    options = options_of(RunConfig)
    settings = gather(given, "run", options)
    resume, out = bool(given.values.get("resume")), given.values.get("out", "")
    if resume and not out:
        raise OptionError("--resume needs --out, the directory of the run to go on with")
    config = _config(settings, RunDirectory(Path(out)) if resume else None)
    refuse_ineffective([config], settings.asked_for(options))
    config.check()
    path = Path(out) if out else fresh(f"{config.method}-{config.data.dataset}-seed{config.seed}")
    if resume and (summary := RunDirectory(path).complete(config)):
        say(f"the run in {path} is complete; a larger --rounds or --cap_gib would take it further")
        print(describe(summary, config, path))
        return 0
    if not resume:
        RunDirectory(path).refuse_occupied()
    logs = asked_logs(given)
    opening = f"{config.method}, seed {config.seed}, on {describe_setting(config)}; writing to {path}"
    say_places(logs, path)
    again = command("run", "--resume", "--out", str(path), *log_words(given))
    return _carry_out(config, path, resume, logs, opening, again)


def describe_setting(config: RunConfig) -> str:
    """Data, clients and engine in a line."""
    workers = config.engine.workers or cores()
    pace = f"{workers} clients at once" if workers > 1 else "one client at a time"
    place = pace if config.engine.torch_device().type == "cpu" else config.engine.device
    return (
        f"{config.data.dataset} ({config.data.partition}), {config.data.clients} clients, "
        f"{config.cohort.size} a round, {place}"
    )


def describe(summary: Summary, config: RunConfig, path: Path) -> str:
    """A run's results, in lines."""
    formula = "the published code's count" if config.accounting == "published" else "the paper's formula"
    up, down = size(8 * summary.upload_bytes), size(8 * summary.download_bytes)
    counted_up, counted_down = size(summary.upload_gib * GIB), size(summary.download_gib * GIB)
    metric, own = summary.metric, summary.final_personal
    best, final, last_ten = (metric.text(score, 2) for score in (summary.best, summary.final, summary.last_ten))
    personal = (
        "" if own is None else f"personal  clients' own models on their own examples: final {metric.text(own, 2)}\n"
    )
    cost = forward_pass(summary.forward_flops_sparse, summary.forward_flops_dense)
    forward = f"forward   {cost}\n" if cost else ""
    refused = f"refused   {counted(summary.refused, 'update')} that could not be used\n" if summary.refused else ""
    stop = {"cap": "the upload cap", "rounds": "the number of rounds"}[summary.stopped_by]
    return (
        f"{metric.name:8}  best {best} (round {summary.best_round}), final {final}, "
        f"mean of the last ten evaluations {last_ten}\n"
        f"{personal}"
        f"upload    {up} measured, {counted_up} by {formula}\n"
        f"download  {down} measured, {counted_down} by {formula}\n"
        f"{forward}"
        f"{refused}"
        f"ended     after {counted(summary.rounds, 'round')} and {duration(summary.seconds)}, by {stop}\n"
        f"results   {path}\n"
        f"report    {command('report', str(path))}"
    )


def _config(settings: Settings, stored: RunDirectory | None) -> RunConfig:
    if stored is None:
        return config_of(settings.values)
    config = updated(stored.stored_config(), settings.values)
    stored.refuse_other(config)
    return config


def _carry_out(config: RunConfig, path: Path, resume: bool, logs: Sequence[Log], opening: str, again: str) -> int:
    interruption = Interruption()
    try:
        with interruption, Several(Reporter(interruption, opening), *logs) as watcher:
            result: Result = run(config, out=path, resume=resume, watcher=watcher)
    except KeyboardInterrupt:
        begun = RunDirectory(path).config.is_file()
        say(f"stopped; go on from the last checkpoint with\n  {again}" if begun else "stopped before the first round")
        return INTERRUPTED
    if not result.finished:
        say(f"stopped after round {result.rows[-1].round}; go on with\n  {again}")
        return INTERRUPTED
    print(describe(result.summary, config, path))
    return 0
