"""The laboratory on the command line: classic networks and kernels, side by side, as tables, JSON and pictures.

    python -m core.lab conv --data MNIST [--device cuda]    ways to convolve: seconds per iteration, accuracy
    python -m core.lab matmul                               the ladder of the matrix product on the GPU
    python -m core.lab depthwise                            depthwise separable against standard convolution
    python -m core.lab ladder [--ops batch_norm adam]       every kernel of an op, held against float64 and timed
    python -m core.lab roofline --model squeezenet1_1       where the time of a training step goes
    python -m core.lab sweep                                photos per second over batch and photo sizes
    python -m core.lab mnist learn | predict | unpack       digits by presets, photographed ones, and as photo folders
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain, product
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.command_line import run_command
from core.data.idx import CLASSES, SIDE, read_digits
from core.diagnosis.model_file import ModelFile, read_model, write_model
from core.errors import DataError, DeviceError, InputError
from core.laboratory import studies
from core.laboratory.digit_folder import unpack
from core.laboratory.digit_photo import read_digit
from core.laboratory.digits import DEVICE_RUNGS, HOST_RUNGS, TITLES, Lesson, Report, keep_quiet, run_lesson, run_plan
from core.laboratory.ladder import CASES, UPDATES, climb
from core.laboratory.mnist import RECIPES, certainty, learn, predict
from core.laboratory.plot import draw_bars, draw_roofline, save_png
from core.laboratory.timing import Timing
from core.plan import DEVICES, cuda_problem
from core.storage import write_file

PROGRESS_WIDTH: Final = 79


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 2 wrong input, 1 anything else."""
    arguments = make_parser().parse_args(argv)
    return run_command(lambda: int(arguments.run(arguments) or 0))


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m core.lab", description="Classic networks and kernels, measured.")
    commands = parser.add_subparsers(required=True)

    def command(name: str, run: Any, help: str, device: str = "auto") -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help)
        made.set_defaults(run=run)
        made.add_argument("--device", default=device, choices=DEVICES)
        made.add_argument("--json", type=Path, help="write the figures to this file")
        made.add_argument("--png", type=Path, help="draw them into this file")
        return made

    conv = command("conv", run_conv, "ways to convolve")
    conv.add_argument("--data", type=Path, required=True, help="folder of MNIST's four files")
    conv.add_argument("--batch", type=int, nargs="+", default=[32, 64])
    conv.add_argument("--examples", type=int, nargs="+", default=[2048], help="digits to train with, once each")
    conv.add_argument("--learning-rate", type=float, nargs="+", default=[0.05])
    conv.add_argument("--padding", choices=("same", "full"), default="same")
    conv.add_argument("--ways", nargs="+", help="only these: naive, vectorised, vectorised_parallel, "
                      "im2col, im2col_parallel, plan (GPU: naive, shared, im2col, plan)")
    matmul = command("matmul", run_matmul, "the ladder of the matrix product on the GPU", "cuda")
    matmul.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    command("depthwise", run_depthwise, "depthwise separable convolution")
    rows = command("ladder", run_ladder, "every kernel of an op, held against float64 and timed")
    rows.add_argument("--ops", nargs="+", choices=(*CASES, *UPDATES), default=[*CASES, *UPDATES], metavar="OP",
                      help=", ".join((*CASES, *UPDATES)))
    for name, run, help in (("roofline", run_roofline, "where the time goes"), ("sweep", run_sweep, "throughput")):
        made = command(name, run, help)
        made.add_argument("--model", default="squeezenet1_1")
        made.add_argument("--batch", type=int, nargs="+", default=[32] if name == "roofline" else [1, 8, 32])
        made.add_argument("--image-size", type=int, nargs="+", default=[224])
        made.add_argument("--training", action="store_true", help="time training steps (sweep)")
    mnist = command("mnist", run_mnist, "digits")
    mnist.add_argument("what", choices=("learn", "predict", "unpack"))
    mnist.add_argument("--photos", type=Path, nargs="+", default=[], help="photographed digits (predict)")
    mnist.add_argument("--data", type=Path, help="folder of MNIST's four files (learn, unpack)")
    mnist.add_argument("--out", type=Path, default=Path("digits"), help="new folder for the digits as photos (unpack)")
    mnist.add_argument("--recipe", choices=tuple(RECIPES), default="cnn")
    mnist.add_argument("--epochs", type=int, default=0, help="instead of the recipe's")
    mnist.add_argument("--model-file", type=Path, default=Path("digits.safetensors"))
    return parser


def run_conv(arguments: argparse.Namespace) -> None:
    device = _device(arguments.device)
    table, place = studies.table_and_place(device)
    train, test = read_digits(arguments.data, "train"), read_digits(arguments.data, "t10k")
    known = (*(HOST_RUNGS if device == "cpu" else DEVICE_RUNGS), "plan")
    ways = arguments.ways or known
    if not set(ways) <= set(known):
        raise InputError(f"--ways: on {device} there are {', '.join(known)}.")
    results = []
    for batch in arguments.batch:
        for examples in arguments.examples:
            for rate in arguments.learning_rate:
                lesson = Lesson(batch, rate, examples, arguments.padding)
                print(f"\nbatch {batch}, {examples} digits, learning rate {rate:g}, {arguments.padding} padding")
                for way in ways:
                    plan, report = way == "plan", teller(TITLES.get(way, way), arguments)
                    done = run_plan(lesson, device, train, test, report) if plan else run_lesson(
                        lesson, table, way, place, train, test, report)
                    report("", 0, 0)
                    print(f"  {TITLES.get(way, way):38} {done.seconds:9.4f} s an iteration   loss {done.loss:.4f}   "
                          f"test accuracy {100 * (done.accuracy or 0):.1f} %", flush=True)
                    results.append({**asdict(lesson), **asdict(done)})
    bars = [(f"{TITLES.get(r['way'], r['way'])}, {r['batch']}", 1e3 * r["seconds"]) for r in results]
    _save(arguments, results, lambda: draw_bars("one training iteration", "milliseconds", bars))


def teller(title: str, arguments: argparse.Namespace) -> Report:
    """A line on the error stream that is written over; nothing where no terminal is, or figures go to a file."""
    if arguments.json or not sys.stderr.isatty():
        return keep_quiet

    def tell(stage: str, done: int, total: int) -> None:
        said = f"  {title}: {stage} {done}/{total} digits" if stage else ""
        sys.stderr.write(f"\r{said:{PROGRESS_WIDTH}}" + ("" if stage else "\r"))
        sys.stderr.flush()

    return tell


def run_matmul(arguments: argparse.Namespace) -> None:
    sizes = [(n, n, n) for n in arguments.sizes] + [(32, 27, 14884)]
    _print_studies(arguments, studies.matmul_study(sizes))


def run_depthwise(arguments: argparse.Namespace) -> None:
    device = _device(arguments.device)
    shapes = studies.DEPTHWISE_SHAPES if device == "cuda" else studies.DEPTHWISE_SHAPES[:1]
    found = (study for shape in shapes for study in studies.depthwise_study(device, *shape))
    bias = (study for shape in shapes for study in studies.bias_study(*shape)) if device == "cuda" else ()
    _print_studies(arguments, chain(found, bias))


def run_ladder(arguments: argparse.Namespace) -> None:
    device, results, wrong = _device(arguments.device), [], []
    for op in arguments.ops:
        directions = ("update",) if op in UPDATES else ("forward", "backward_input", "backward_weight")
        for (name, case), direction in product({**CASES, **UPDATES}[op].items(), directions):
            for i, found in enumerate(climb(case, direction, device)):
                row, head = found.kernel, f"\n{op} {direction} {name}\n"
                told = f"{found.milliseconds:10.4f} ms   error {found.error:.1e}{'' if found.right else ', too large'}"
                print(f"{'' if i else head}  {row.algorithm:20} {found.reason or told}", flush=True)
                wrong += [] if found.reason or found.right else [f"{row.algorithm} of {op}, {direction}"]
                results.append({"op": op, "direction": direction, "case": name, "algorithm": row.algorithm,
                                "milliseconds": found.milliseconds, "error": found.error, "reason": found.reason})
    bars = [(f"{r['op']} {r['direction']} {r['algorithm']}", r["milliseconds"]) for r in results if not r["reason"]]
    _save(arguments, results, lambda: draw_bars("kernels", "milliseconds", bars))
    if wrong:
        raise DeviceError(f"These kernels differ from the reference by more than they may: {'; '.join(wrong)}.")


def _print_studies(arguments: argparse.Namespace, found: Any) -> None:
    results: dict[str, list[Timing]] = {}
    for name, timings in found:
        print(f"\n{name}")
        results[name] = timings
        for timing in timings:
            said = timing.refusal or f"{timing.milliseconds:10.4f} ms {timing.gflops:10.1f} GFLOP/s"
            print(f"  {timing.algorithm:20} {said}", flush=True)
    bars = [(f"{n} {t.algorithm}", t.gflops) for n, found in results.items() for t in found if not t.refusal]
    plain = {name: [asdict(t) for t in found] for name, found in results.items()}
    _save(arguments, plain, lambda: draw_bars("kernels", "GFLOP/s", bars))


def run_roofline(arguments: argparse.Namespace) -> None:
    device = _device(arguments.device)
    times = studies.roofline_study(arguments.model, device, arguments.batch[0], arguments.image_size[0])
    gflops, gigabytes = studies.roof(device)
    total = sum(t.milliseconds for t in times)
    for t in sorted(times, key=lambda t: -t.milliseconds)[:25]:
        rate = 1 / max(t.milliseconds, 1e-9) / 1e6
        print(f"{t.layer:36} {t.direction:16} {t.kernel:18} {t.milliseconds:9.4f} ms "
              f"{100 * t.milliseconds / total:5.1f} % {t.flops * rate:10.1f} GFLOP/s {t.bytes * rate:8.1f} GB/s")
    print(f"all {len(times)} kernels: {total:.3f} ms; the roof is {gflops:.0f} GFLOP/s and {gigabytes:.0f} GB/s")
    title = f"{arguments.model}, one training step of {arguments.batch[0]} photos, {device}"
    _save(arguments, [asdict(t) for t in times],
          lambda: draw_roofline(title, studies.points(times), gflops, gigabytes))


def run_sweep(arguments: argparse.Namespace) -> None:
    device, results = _device(arguments.device), []
    sizes = arguments.image_size
    for found in studies.sweep_study(arguments.model, device, arguments.training, arguments.batch, sizes):
        said = found.refusal or f"{found.photos_per_second:10.1f} photos/s"
        print(f"batch {found.batch:4}  {found.image_size:4} px  {said}", flush=True)
        results.append(asdict(found))
    bars = [(f"{r['image_size']} px, batch {r['batch']}", r["photos_per_second"]) for r in results if not r["refusal"]]
    _save(arguments, results, lambda: draw_bars(arguments.model, "photos a second", bars))


def run_mnist(arguments: argparse.Namespace) -> None:
    device = _device(arguments.device)
    if arguments.what == "predict":
        model = read_model(arguments.model_file)
        for path in arguments.photos:
            logits = predict(model.graph, model.weights, read_digit(_read_photo(path))[None], device)
            digit, share = certainty(logits[0])
            print(f"{path}: {model.classes[digit]} ({100 * share:.0f} %)")
        return
    if arguments.data is None:
        raise DataError("Name the folder of MNIST's four files with --data.")
    if arguments.what == "unpack":
        print(f"{unpack(arguments.data, arguments.out)} digits written to {arguments.out}")
        return
    recipe = RECIPES[arguments.recipe]
    if arguments.epochs:
        recipe = replace(recipe, epochs=arguments.epochs, steps=0)
    learned = learn(recipe, read_digits(arguments.data, "train"), read_digits(arguments.data, "t10k"), device)
    print(f"{arguments.recipe}: {100 * learned.accuracy:.2f} % of the test digits right after {learned.steps} steps "
          f"in {learned.seconds:.1f} s")
    figures = {"test_accuracy": learned.accuracy}
    write_model(arguments.model_file, ModelFile(learned.graph, learned.weights, CLASSES, SIDE, figures=figures))
    print(f"saved as {arguments.model_file}")


def _read_photo(path: Path) -> Any:
    import cv2

    try:
        photo = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    except (OSError, cv2.error) as error:
        raise DataError(f"{path} cannot be read ({error}).") from error
    if photo is None:
        raise DataError(f"{path} is not a photo that can be read.")
    return cv2.cvtColor(photo, cv2.COLOR_BGR2RGB)


def _device(asked: str) -> str:
    if asked == "auto":
        return "cuda" if cuda_problem() is None else "cpu"
    return asked


def _save(arguments: argparse.Namespace, figures: Any, draw: Any) -> None:
    if arguments.json:
        write_file(arguments.json, json.dumps(figures, indent=1) + "\n")
    if arguments.png:
        save_png(draw(), arguments.png)


if __name__ == "__main__":
    sys.exit(main())
