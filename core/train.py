"""``leafclinic train``: the command line of a training."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from core import command_line
from core.child_process import module_command
from core.config import RunConfig
from core.data.synthetic import write_demo
from core.distributed.launch import end_rank, run_rank, run_ranks
from core.distributed.rank_environment import RankEnvironment, choose_gpu
from core.errors import EXIT_DONE, ConfigError, Problem
from core.training.commands import Commands
from core.training.dry_run import describe_run
from core.training.events import Event, Progress, RunFailed
from core.training.presets import PRESETS
from core.training.run_folder import list_sources, read_config
from core.training.setup import check_gpus
from core.training.terminal import TerminalReader, print_json
from core.training.trace import TraceWriter
from core.training.trainer import Trainer
from core.user_cache import create_private_folder, user_cache_folder

DEMO: Final = "demo-photos"

Show = Callable[[Event], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 2 wrong input, 3 stopped and resumable, 4 a rank is lost, 130 stopped before, 1 other."""
    return end_rank(lambda: command_line.run_command(
        lambda given: run_rank(partial(train, given)), argv,
        lambda message, code: print_json(RunFailed(message, traceback.format_exc(), code))))


def train(argv: Sequence[str], environment: RankEnvironment) -> int:
    """Train by the arguments, as one of several ranks if a launcher started them: only rank 0 prints. Raises
    LeafClinicError."""
    arguments, found = command_line.read_arguments(make_parser(), argv)
    config = configure(arguments, found)
    if arguments.gpu is not None and max(config.gpus, environment.size) > 1:
        raise ConfigError([Problem("gpu", "cannot be combined with several processes, each of which has its own GPU.")])
    show = print_json if arguments.json else TerminalReader(sys.stdout, sys.stdout.isatty()).show
    if arguments.demo:
        config = replace(config, data=str(make_demo(config, show)))
    if config.gpus > 1 and environment.size == 1 and not arguments.dry_run:
        check_gpus(config)
        return run_ranks(module_command("core.train", *argv), config.gpus)
    trainer = Trainer(
        config, resume=bool(arguments.resume), overwrite=arguments.overwrite,
        profiled=bool(arguments.profile), environment=environment,
    )  # fmt: skip
    if arguments.dry_run:
        print(describe_run(trainer.check_start()))
        return EXIT_DONE
    choose_gpu(environment)
    if environment.rank:
        return follow(trainer, ())
    if not arguments.profile:
        return follow(trainer, (show,))
    with closing(TraceWriter(Path(arguments.profile))) as trace:
        return follow(trainer, (show, trace.show))


def follow(trainer: Trainer, readers: Sequence[Show]) -> int:
    """Show the events of a run; Ctrl-C or a closed terminal stops it after a checkpoint, a second Ctrl-C at once."""
    commands = Commands()
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:  # as nohup does
            signal.signal(number, _stopper(commands, trainer, bool(readers)))

    def show(event: Event) -> None:
        try:
            for read in readers:
                read(event)
        except OSError as error:
            command_line.mute_unread(error)  # as after Ctrl-C
            commands.stop()

    return trainer.follow(commands, show)


def configure(arguments: argparse.Namespace, found: list[Problem]) -> RunConfig:
    """The settings from all sources. Raises ConfigError with all problems."""
    options = command_line.read_settings(arguments, found)
    file = command_line.read_toml(Path(arguments.config)) if arguments.config and not arguments.resume else {}
    given = {**file, **options}
    command_line.check_folder("profile", arguments.profile, found, list_sources(arguments.resume, given))
    if arguments.dry_run:
        found += [Problem(name, "cannot be combined with --dry-run.") for name in ("json", "profile")
                  if getattr(arguments, name)]  # fmt: skip
    if arguments.resume:
        found += [Problem(name, "cannot be combined with --resume: a resumed run keeps its settings.")
                  for name in ("config", "demo", "overwrite") if getattr(arguments, name)]
        config = command_line.change_settings(read_config(Path(arguments.resume)), options, found)
        return with_absolute_paths(replace(config, out=arguments.resume))
    data = given.get("data", "")
    if not data and not arguments.demo:
        found.append(Problem("data", "is missing. Give a folder of photos or a CSV manifest, or use --demo."))
    if data and arguments.demo:
        found.append(Problem("demo", "generates its own photos. Give either --data or --demo."))
    if "model" in given and given.get("start"):
        found.append(Problem("model", "cannot be combined with --from: the network is that of the file."))
    return with_absolute_paths(command_line.merge_settings(options, file, found))


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """The settings as they mean the same in every folder; `start` and `teacher` become absolute when they are read."""
    paths = {name: getattr(config, name) for name in ("data", "field", "split", "cache", "out")}
    return replace(config, **{n: os.path.abspath(path) for n, path in paths.items() if path})


def make_demo(config: RunConfig, show: Show) -> Path:
    """Generate the demo photos in the cache folder if they do not exist yet."""
    home = Path(config.cache) if config.cache else create_private_folder(user_cache_folder())
    return write_demo(home.absolute() / DEMO, progress=lambda done, total: show(Progress("demo", done, total)))


def make_parser() -> argparse.ArgumentParser:
    recipes = "\n".join(f"  {name:13} {preset.idea}" for name, preset in PRESETS.items())
    parser = argparse.ArgumentParser(
        prog="leafclinic train",
        usage="leafclinic train --data PHOTOS [--preset NAME] [--out RUN] [option ...]",
        description="Train a model on a folder of photos (one subfolder per class) or a CSV manifest.",
        epilog=f"presets:\n{recipes}\n\nexit codes: 0 done, 1 other errors, 2 wrong input, 3 stopped and resumable, "
               "4 another rank does not answer, 130 stopped before the first step",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE.toml", default="", help="read settings from a TOML file; options "
                                                                          "override them")
    parser.add_argument("--resume", metavar="RUN", default="", help="resume the run in this folder")
    parser.add_argument("--demo", action="store_true", help="train on generated synthetic leaves")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier run in the run folder")
    parser.add_argument("--dry-run", action="store_true", help="print the network, its operations and the memory "
                                                               "needed, without training")
    parser.add_argument("--json", action="store_true", help="print every event as one line of JSON")
    parser.add_argument("--profile", metavar="OUT.json", default="",
                        help="write steps and kernel times as a Chrome trace (chrome://tracing, ui.perfetto.dev)")
    command_line.add_settings(parser)
    return parser


def _stopper(commands: Commands, trainer: Trainer, shown: bool = True) -> Callable[[int, FrameType | None], None]:
    def stop(number: int, frame: FrameType | None) -> None:
        if commands.stopped():
            os._exit(trainer.stopped_code)  # the last checkpoint is complete on the disk
        commands.stop()
        if shown and number == signal.SIGINT:  # launchers of ranks end them by SIGTERM
            doing = "after saving this step" if trainer.resumable else "before the training begins"
            sys.stderr.write(f"\nStopping {doing}. Press Ctrl-C again to stop immediately.\n")

    return stop


if __name__ == "__main__":
    sys.exit(main())
