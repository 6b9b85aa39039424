"""``leafclinic lab``: compares kernels and networks on this machine, as tables, JSON and pictures.

`core.laboratory.options` describes the commands.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any, Final

from core.command_line import check_folder, run_command
from core.data.dataset import ReportStage, ignore
from core.data.digits import CLASSES, SIDE, generate_digits, read_digits
from core.data.photo import PhotoError
from core.data.photo_reader import read_photo
from core.diagnosis.metrics import softmax
from core.diagnosis.model_file import ModelFile, read_model, write_model
from core.errors import EXIT_DONE, ConfigError, DataError, DeviceError, InputError, ModelFileError, Problem
from core.laboratory import pytorch_baseline, studies
from core.laboratory.algorithms import algorithm_study
from core.laboratory.digit_photos import read_digit, unpack
from core.laboratory.digits import Lesson, run_lesson, run_plan
from core.laboratory.gpu_plans import Planned, explain_plan, plans, tune_plans
from core.laboratory.kernel_comparison import CASES, UPDATES, compare_kernels, list_kernels
from core.laboratory.mnist import RECIPES, MnistRecipe, digit_graph, learn, predict
from core.laboratory.options import COMPARED, make_parser
from core.laboratory.plot import draw_bars, draw_roofline, save_png
from core.laboratory.timing import Timing
from core.ops.contract import Arrays
from core.plan import check_device, choose_device
from core.storage import write_file
from core.text import printable

PROGRESS_WIDTH: Final = 79
BAR: Final = 30
"""Characters of a progress bar."""
SHOWN: Final = 25
"""Number of printed kernels of a step, the slowest; the picture has all."""


def run(argv: Sequence[str]) -> int:
    """Run the command once the folders of all files that it writes exist. Raises LeafClinicError."""
    arguments, found = make_parser().parse_args(argv), list[Problem]()
    arguments.command_line = " ".join(("leafclinic lab", *argv))
    for name in ("json", "png", "model_file" if getattr(arguments, "what", "") == "train" else ""):
        if file := getattr(arguments, name, None):
            check_folder(name, str(file), found)
    if found:
        raise ConfigError(found)
    check_device(getattr(arguments, "device", ""))
    COMMANDS[arguments.command](arguments)
    return EXIT_DONE


main: Final = partial(run_command, run, print_error=None)


def run_conv(arguments: argparse.Namespace) -> None:
    device, results = choose_device(arguments.device), []
    train, test = _digits(arguments.data)
    algorithms = arguments.algorithms or COMPARED[device]
    if not set(algorithms) <= set(COMPARED[device]):
        raise InputError(f"--algorithms: on {device} there are {', '.join(COMPARED[device])}.")
    if not max(arguments.batch) <= min(arguments.examples) <= max(arguments.examples) <= len(train[0]):
        raise InputError(f"--examples: there are {len(train[0])} training digits, and at least the batch size is "
                         f"needed (here {max(arguments.batch)}).")
    for batch, examples, rate in product(arguments.batch, arguments.examples, arguments.learning_rate):
        lesson = Lesson(batch, rate, examples, arguments.padding)
        print(f"\nbatch {batch}, {examples} digits, learning rate {rate:g}, {arguments.padding} padding, {device}")
        print(f"  {'algorithm':22} {'ms/iteration':>15} {'faster by':>10} {'last loss':>10} {'test accuracy':>14}")
        first = 0.0
        for algorithm in algorithms:
            report = make_reporter(algorithm, arguments)
            if algorithm == pytorch_baseline.NAME and (missing := pytorch_baseline.problem(device)) is not None:
                print(f"  {missing}")
                continue
            if algorithm == pytorch_baseline.NAME:
                done = pytorch_baseline.run_torch(lesson, device, train, test, report)
            elif algorithm == "plan" or device == "cuda":
                done = run_plan(lesson, device, train, test, report, "auto" if algorithm == "plan" else algorithm)
            else:
                done = run_lesson(lesson, algorithm, train, test, report)
            report("", 0, 0)
            first = first or done.seconds
            print(f"  {algorithm:22} {1e3 * done.seconds:15.2f} {first / done.seconds:9.1f}x "
                  f"{done.loss:10.4f} {100 * (done.accuracy or 0):12.1f} %", flush=True)
            results.append({**asdict(lesson), **asdict(done)})
    bars = [(f"{r['algorithm']}, {r['batch']}", 1e3 * r["seconds"]) for r in results]
    _save(arguments, results, lambda: draw_bars("one training iteration", "milliseconds", bars))


def make_reporter(title: str, arguments: argparse.Namespace) -> ReportStage:
    """Progress on the error stream; nothing if it is no terminal, or if results go to a file."""
    if arguments.json or not sys.stderr.isatty():
        return ignore

    def report(stage: str, done: int, total: int) -> None:
        line = f"  {title}: {stage} {done}/{total} digits" if stage else ""
        sys.stderr.write(f"\r{line:{PROGRESS_WIDTH}}" + ("" if stage else "\r"))
        sys.stderr.flush()

    return report


def run_matmul(arguments: argparse.Namespace) -> None:
    if arguments.device == "cpu":
        raise InputError("--device: this benchmark runs on a GPU only.")
    sizes = [(n, n, n) for n in arguments.sizes] + [(32, 27, 14884)]
    peaks = studies.peaks()
    print(f"The peak is {peaks[False] / 1e3:.0f} TFLOP/s in float32 and {peaks[True] / 1e3:.0f} in bf16. Times "
          "of bf16\nimplementations include the conversion from float32. cuBLAS multiplies in float32; "
          "see\nbenchmarks.kernels for bf16.")
    _print_studies(arguments, studies.matmul_study(sizes), peaks)


def run_depthwise(arguments: argparse.Namespace) -> None:
    device = choose_device(arguments.device)
    shapes = studies.DEPTHWISE_SHAPES if device == "cuda" else studies.DEPTHWISE_SHAPES[:1]
    found = (study for shape in shapes for study in studies.depthwise_study(device, *shape))
    bias = (study for shape in shapes for study in studies.bias_study(*shape)) if device == "cuda" else ()
    _print_studies(arguments, chain(found, bias))


def run_kernels(arguments: argparse.Namespace) -> None:
    device, results, wrong = choose_device(arguments.device), [], []
    for op in arguments.ops:
        directions = dict.fromkeys(kernel.direction for kernel in list_kernels((op,)) if kernel.device == device)
        if not directions:
            print(f"\n{op}: there are no kernels for {device}; use --device {'cpu' if device == 'cuda' else 'cuda'}.")
        for (name, case), direction in product({**CASES, **UPDATES}[op].items(), directions):
            for i, found in enumerate(compare_kernels(case, direction, device)):
                kernel = found.kernel
                if not i:
                    print(f"\n{op} {direction}, {name}, {device}\n"
                          f"  {'kernel':20} {'ms':>10} {'GFLOP/s':>10} {'error':>9} {'allowed':>9}")
                rate = f"{found.gflops:10,.1f}" if found.gflops else " " * 10
                line = (f"{found.milliseconds:10.4f} {rate} {found.error:9.1e} {kernel.tolerance:9.0e}"
                        f"{'' if found.right else '  WRONG'}")
                print(f"  {kernel.algorithm:20} {found.reason or line}", flush=True)
                wrong += [] if found.reason or found.right else [f"{kernel.algorithm} of {op}, {direction}"]
                results.append({"op": op, "direction": direction, "case": name, "algorithm": kernel.algorithm,
                                "milliseconds": found.milliseconds, "error": found.error, "reason": found.reason})
    bars = [(f"{r['op']} {r['direction']} {r['algorithm']}", r["milliseconds"]) for r in results if not r["reason"]]
    _save(arguments, results, lambda: draw_bars("kernels", "milliseconds", bars))
    if wrong:
        raise DeviceError(f"These kernels exceed their tolerance: {'; '.join(wrong)}.")


def _print_studies(arguments: argparse.Namespace, found: Any, peaks: Mapping[bool, float] | None = None) -> None:
    """`peaks`: GFLOP/s of the chip in float32 (False) and in bf16 (True)."""
    results: dict[str, list[Timing]] = {}
    for name, timings in found:
        results[name] = timings
        ran = [t for t in timings if not t.refusal]
        vendor = next((t.gflops for t in ran if t.algorithm == "cublas"), 0.0)
        head = f"{'of cuBLAS':>10} {'of the peak':>12}" if peaks else ""
        print(f"\n{name}\n  {'kernel':20} {'ms':>10} {'GFLOP/s':>10} {'faster by':>10} {head}".rstrip())
        for t in timings:
            if t.refusal:
                print(f"  {t.algorithm:20} {t.refusal}")
                continue
            shares = f"{100 * t.gflops / vendor:8.0f} %" if vendor and peaks and not t.halved else " " * 10
            shares += f" {100 * t.gflops / peaks[t.halved]:10.0f} %" if peaks else ""
            print(f"  {t.algorithm:20} {t.milliseconds:10.4f} {t.gflops:10,.1f} {t.gflops / ran[0].gflops:9.1f}x "
                  f"{shares}".rstrip(), flush=True)
    bars = [(f"{n} {t.algorithm}", t.gflops) for n, found in results.items() for t in found if not t.refusal]
    plain = {name: [asdict(t) for t in found] for name, found in results.items()}
    _save(arguments, plain, lambda: draw_bars("kernels", "GFLOP/s", bars))


def run_roofline(arguments: argparse.Namespace) -> None:
    device = choose_device(arguments.device)
    times = studies.roofline_study(arguments.model, device, arguments.batch, arguments.image_size, arguments.precision)
    gflops, gigabytes = studies.roof(device)
    gflops = max([gflops, *(t.gflops for t in times)])  # beside other programs the product may be measured too low
    total = sum(t.milliseconds for t in times)
    title = f"{arguments.model}, one training step of {arguments.batch} photos, {device}"
    print(f"{title}: {total:.3f} ms in {len(times)} kernels\nRoofline: {gflops:,.0f} GFLOP/s (matrix product), "
          f"{gigabytes:,.0f} GB/s (copy)\n\n{'layer':22} {'pass':15} {'kernel':21} {'ms':>7} {'of all':>7} "
          f"{'GFLOP/s':>7} {'GB/s':>7} {'of peak':>7}")
    for t in sorted(times, key=lambda t: -t.milliseconds)[:SHOWN]:
        print(f"{t.layer[-22:]:22} {t.direction:15} {t.kernel:21} {t.milliseconds:7.3f} "
              f"{100 * t.milliseconds / total:5.1f} % {t.gflops:7,.0f} {t.gigabytes:7,.1f} "
              f"{100 * t.of_peak:5.0f} %")
    _save(arguments, [asdict(t) for t in times], lambda: draw_roofline(title, studies.points(times), gflops, gigabytes))


def run_algorithms(arguments: argparse.Namespace) -> None:
    device = choose_device(arguments.device)
    devices = ("cpu", "cuda") if (arguments.device, device) == ("auto", "cuda") else (device,)
    batch, size = arguments.batch, arguments.image_size
    print(f"{arguments.model}, forward and backward pass of {batch} photos of {size} pixels\n"
          f"{'device':7} {'algorithm':12} {'precision':10} {'ms':>10} {'faster by':>10} {'loss':>8}")
    results, first = [], 0.0
    for found in algorithm_study(arguments.model, batch, size, devices, arguments.modules):
        first = first or found.milliseconds
        line = (f"{found.milliseconds:10.2f} {first / found.milliseconds:9.1f}x {found.loss:8.4f}"
                if not found.reason else found.reason)
        print(f"{found.device:7} {found.algorithm:12} {found.precision:10} {line}", flush=True)
        for module, (forward, backward) in found.modules.items():
            print(f"  {module:20} forward {forward:10.3f} ms, backward {backward:10.3f} ms")
        results.append({"model": arguments.model, "batch": batch, "image_size": size, **asdict(found)})
        _write_figures(arguments, results)  # an algorithm may take minutes
    bars = [(f"{r['device']} {r['algorithm']} {r['precision']}", r["milliseconds"]) for r in results if not r["reason"]]
    _save(arguments, results, lambda: draw_bars("forward and backward pass", "milliseconds", bars))


def run_sweep(arguments: argparse.Namespace) -> None:
    device, results = choose_device(arguments.device), []
    what = "training steps" if arguments.training else "predictions"
    print(f"{arguments.model}, {what}, {device}\n{'batch':>6} {'pixels':>7} {'photos/s':>14} {'ms a batch':>12}")
    for found in studies.sweep_study(arguments.model, device, arguments.training, arguments.batch,
                                     arguments.image_size, arguments.precision):
        line = found.refusal or f"{found.photos_per_second:14,.1f} {1e3 * found.batch / found.photos_per_second:12.3f}"
        print(f"{found.batch:6} {found.image_size:7} {line}", flush=True)
        results.append(asdict(found))
    bars = [(f"{r['image_size']} px, batch {r['batch']}", r["photos_per_second"]) for r in results if not r["refusal"]]
    _save(arguments, results, lambda: draw_bars(arguments.model, "photos per second", bars))


def run_mnist(arguments: argparse.Namespace) -> None:
    device = choose_device(arguments.device)
    if arguments.what == "predict":
        if not arguments.photos:
            raise DataError("Give photos of digits with --photos.")
        model = _read_digit_model(arguments.model_file)
        for path in arguments.photos:
            try:
                photo = read_photo(str(path))
            except PhotoError as error:
                raise DataError(f"{path}: {error}") from error
            (stated,) = softmax(predict(model.graph, model.weights, read_digit(photo)[None], device))
            print(printable(f"{path}: {model.classes[stated.argmax()]} ({100 * stated.max():.0f} %)"))
        return
    if arguments.what == "unpack":
        print(f"Saved {unpack(_digits(arguments.data), arguments.out)} digits to {arguments.out}")
        return
    recipe = RECIPES[arguments.recipe]
    if arguments.epochs:
        recipe = replace(recipe, epochs=arguments.epochs, steps=0)
    start = _start_weights(arguments.start, recipe) if arguments.start else None
    train, test = _digits(arguments.data)
    if len(train[0]) < recipe.batch:
        raise DataError(f"There are {len(train[0])} training digits, but a batch has {recipe.batch}. Give more digits.")
    learned = learn(recipe, train, test, device, start=start, algorithm=arguments.algorithm,
                    report=lambda step, loss, right: print(
                        f"step {step:6}  loss {loss:.3f}  accuracy {100 * right:.2f} %", flush=True))  # fmt: skip
    figures = {"test_accuracy": learned.accuracy}
    write_model(arguments.model_file, ModelFile(learned.graph, learned.weights, CLASSES, SIDE, figures=figures))
    print(f"{arguments.recipe}: test accuracy {100 * learned.accuracy:.2f} % after {learned.steps} steps in "
          f"{learned.seconds:.1f} s\nSaved to {arguments.model_file}")


def _read_digit_model(path: Path) -> ModelFile:
    model = read_model(path)
    if model.classes != CLASSES or model.size != (SIDE, SIDE):
        raise ModelFileError(f"{path} is not a model of digits of {SIDE} pixels. Give a model written by mnist train.")
    return model


def _start_weights(path: Path, recipe: MnistRecipe) -> Arrays:
    """The weights of a model file of the recipe's network. Raises ModelFileError."""
    model = _read_digit_model(path)
    if model.graph.parameters() != digit_graph(recipe).parameters():
        raise ModelFileError(f"{path} is a {model.graph.name}, but the recipe trains a {recipe.model}. Give its recipe "
                             "with --recipe.")  # fmt: skip
    return model.weights


def _digits(folder: Path | None) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Training and test digits of MNIST, or generated ones without a folder."""
    if folder is not None:
        return read_digits(folder, "train"), read_digits(folder, "t10k")
    print("Without --data, the digits are generated.")
    return generate_digits("train"), generate_digits("t10k")


def _write_figures(arguments: argparse.Namespace, figures: Any) -> None:
    if arguments.json:
        write_file(arguments.json, json.dumps(figures, indent=1) + "\n")


def _save(arguments: argparse.Namespace, figures: Any, draw: Any) -> None:
    _write_figures(arguments, figures)
    if arguments.png:
        save_png(draw(), arguments.png)


def run_explain(arguments: argparse.Namespace) -> None:
    from core.gpu.tuning import encode  # numba.cuda costs a second: only where it is used

    planned = Planned(arguments.model, arguments.batch, arguments.precision, arguments.training, arguments.image_size)
    found, seconds = explain_plan(planned, arguments.capability, arguments.algorithm), 0.0
    major, minor = found.choices[0].considered[0].case.frame.hardware.capability
    print(f"{planned}, {planned.image_size} pixels, compute capability {major}.{minor}")
    for one in found.choices:
        inside = f": {found.measured[one]:.1f} us in the step" if found.measured and one in found.measured else ""
        print(f"\n{' + '.join(one.steps)}, {one.direction}{inside}")
        for considered in one.considered:
            configuration = considered.case.configuration
            shown = "" if configuration is None else f", {encode(configuration)}"
            cost = considered.reason or f"{considered.microseconds:10.1f} us, {considered.source}{shown}"
            name, chosen = considered.candidate.name, considered.candidate.name == one.chosen
            print(f"  {'->' if chosen else '  '} {name:16} {cost}")
            seconds += considered.microseconds if chosen else 0.0
    print(f"\n{seconds:.1f} us in all")
    for origin in found.origins:
        print(origin)
    if found.measured is not None and found.others is not None:
        for name, took in found.others.items():
            print(f"  other kernels: {name:16} {took:10.1f} us")
        print(f"in the captured step: {found.parts:.1f} us, the whole takes {found.whole:.1f} us")


def run_tune(arguments: argparse.Namespace) -> None:
    wanted = plans(arguments.model, arguments.batch, arguments.precision, arguments.what)
    shown = ""
    for event in tune_plans(wanted, arguments.budget, arguments.out, arguments.command_line, arguments.commit):
        line = f"{event.target.name}: {event.done} of {event.total} cases, {event.text}"
        if sys.stderr.isatty():
            done = BAR * event.done // max(event.total, 1)
            sys.stderr.write(f"\r[{'#' * done}{'.' * (BAR - done)}] {line:{PROGRESS_WIDTH}.{PROGRESS_WIDTH}}")
            sys.stderr.flush()
        if event.is_last or event.target.name != shown:
            print(("\n" if sys.stderr.isatty() else "") + line, flush=True)
        shown = event.target.name


COMMANDS: Final = {
    "conv": run_conv, "matmul": run_matmul, "depthwise": run_depthwise, "kernels": run_kernels,
    "algorithms": run_algorithms, "roofline": run_roofline, "sweep": run_sweep, "explain": run_explain,
    "tune": run_tune, "mnist": run_mnist,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
