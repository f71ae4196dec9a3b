"""The command ``bidirl``.

Exit status: 0 done; 1 the run failed (cause printed, what was finished is on disk); 2 a setting is wrong (one line,
nothing was started); 130 interrupted.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from bidirl.cli.config import Config
from bidirl.cli.console import console
from bidirl.cli.options import last, take
from bidirl.cli.parsing import Parsed, describe, parse_config
from bidirl.cli.resume import find_resume, run_resuming
from bidirl.core.errors import BidirlError, ConfigError, LearnerLost, WorkerError

USAGE = """\
bidirl: which stage should each device of a fixed budget run right now?

  bidirl train CONFIG [--key value …]      run a job on Ray, vLLM and DeepSpeed
  bidirl simulate CONFIG [--key value …]   run the same job on a simulated cluster
  bidirl neutrality CONFIG [--key value …]  is learning the same bit for bit with and without borrowing?
  bidirl soak [--schedules N] [--seed S]   run the coordinator under simulated faults, one schedule per seed
  bidirl model tiny|grow|import …          make a small model, enlarge it, or import one
  bidirl plan CONFIG [--num_devices N …]   which split of the devices, why, and why not the others
  bidirl ablate CONFIG [--policy CLASS …]  policies × seeds on the simulated cluster, as one table
  bidirl replay RUN --policy CLASS         what a policy would have decided on a recorded run
  bidirl check CLASS                       whether a class of yours keeps its contract
  bidirl compare RUN…                      one table over run directories
  bidirl timeline RUN [TARGET.png]         draw what every device did

Any key of the config can be set on the command line:
  bidirl train job.yaml --policy my_package.MyPolicy --policy.margin_seconds 2 --staleness 0
  --dry-run                       print the resolved config and the planned layout, start nothing
  --resume RUN                    go on from the latest whole checkpoint of that run, in a new run directory;
                                  --resume_allow KEY,… lets these keys differ from its config
  --tracking none|files|wandb     where results go
  bidirl train --help             all keys with types, defaults and meanings
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))  # classes of the user's own, also where bidirl is an installed script
    try:
        return _dispatch(given)
    except ConfigError as error:
        print(f"bidirl: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"bidirl: this needs {error.name}, which is not installed: see 'Install' in the README", file=sys.stderr)
        return 2
    except BidirlError as error:
        print(f"bidirl: {type(error).__name__}: {error}{_cause(error)}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("bidirl: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1


def _dispatch(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0 if given else 2
    command, rest = given[0], given[1:]
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": lambda options: _job("ray", options, given),
        "simulate": lambda options: _job("sim", options, given),
        "neutrality": lambda options: _subcommand("neutrality", options),
        "soak": lambda options: _subcommand("soak", options),
        "model": lambda options: _subcommand("models", options),
        "plan": lambda options: _subcommand("plan", options),
        "ablate": lambda options: _subcommand("ablate", options),
        "replay": lambda options: _subcommand("replay", options),
        "check": lambda options: _subcommand("check", options),
        "compare": _compare,
        "timeline": _timeline,
    }
    if command == "--version":
        from bidirl import __version__

        print(f"bidirl {__version__}")
        return 0
    if command not in commands:
        raise ConfigError(f"there is no command {command!r}: use one of {', '.join(commands)}")
    return commands[command](rest)


def _job(world: str, options: list[str], given: list[str]) -> int:
    if "--help" in options or "-h" in options:
        print(USAGE + "\n" + describe(Config))
        return 0
    dry_run = "--dry-run" in options
    options = [option for option in options if option != "--dry-run"]
    own, options = take(options, "resume", "resume_allow")
    resumed, allowed = last(own["resume"], "resume", ""), last(own["resume_allow"], "resume_allow", "")
    if not options or options[0].startswith("--"):
        raise ConfigError(f"bidirl {given[0]} needs a config file: bidirl {given[0]} CONFIG [--key value …]")
    file, keys = Path(options[0]), options[1:]
    parsed = parse_config(Config, file, keys, unbuilt=Config.UNBUILT[world])
    if dry_run:
        _print_plan(parsed, world)
        return 0
    found = find_resume(Path(resumed), parsed.resolved_yaml, allowed.split(",")) if resumed else None
    config, summary = run_resuming(file, keys, world, ["bidirl", *given], found)
    _print_result(config, summary)
    return 0


def _print_plan(parsed: Parsed[Config], world: str) -> None:
    print(parsed.resolved_yaml, end="")
    topology = parsed.value.envelope.topology()
    print(f"# planned layout ({'simulated' if world == 'sim' else 'real'}), {topology.num_devices} devices")
    for pool, devices in (("rollpool", topology.rollpool), ("trainpool", topology.trainpool)):
        print(f"#   {pool}: devices {', '.join(map(str, devices)) or 'none'}")
    for worker in topology.workers:
        kind = "primary" if worker.primary else "auxiliary"
        print(f"#   {worker.name}: {kind} on device {', '.join(map(str, worker.devices))}")


def _print_result(config: Config, summary: object) -> None:
    from bidirl.cli.worlds import run_directory
    from bidirl.runtime.outputs import comparison_table

    assert isinstance(summary, dict)
    console().print(comparison_table([(config.name, {"staleness_bound": config.staleness, **summary})]))
    if config.tracking != "none":
        print(f"run directory: {run_directory(config)}")


def _compare(runs: list[str]) -> int:
    if not runs:
        raise ConfigError("bidirl compare needs run directories: bidirl compare RUN…")
    from bidirl.runtime.outputs import comparison_table, read_summary

    console().print(comparison_table([(Path(run).name, read_summary(Path(run))) for run in runs]))
    return 0


def _timeline(options: list[str]) -> int:
    if len(options) not in (1, 2):
        raise ConfigError("bidirl timeline needs one run directory: bidirl timeline RUN [TARGET.png]")
    from bidirl.runtime.outputs import plot_timeline

    run = Path(options[0])
    print(plot_timeline(run, Path(options[1]) if len(options) == 2 else run / "timeline.png"))
    return 0


def _subcommand(module: str, options: list[str]) -> int:
    run: Callable[[list[str]], int] = import_module(f"bidirl.cli.{module}").main
    return run(options)


def _cause(error: BaseException) -> str:
    """What stands behind an error of a user's class; a worker's error says its cause itself."""
    cause = error.__cause__
    if cause is None or isinstance(error, WorkerError | LearnerLost):
        return ""
    lines = str(cause).strip().splitlines()
    return f" (caused by {type(cause).__name__}: {lines[0] if lines else ''})"


if __name__ == "__main__":
    sys.exit(main())
