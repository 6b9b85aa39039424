"""The options of ``leafclinic lab``, a subcommand for each study."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from core.distributed.rank_environment import add_gpu
from core.errors import EXIT_CODES
from core.laboratory import pytorch_baseline
from core.laboratory.digits import CPU_ALGORITHMS, GPU_ALGORITHMS
from core.laboratory.kernel_comparison import CASES, UPDATES
from core.laboratory.mnist import RECIPES
from core.models.architectures import MODELS
from core.models.sequential import PADDINGS
from core.plan import DEVICES, PRECISIONS

AddCommand: TypeAlias = Callable[..., argparse.ArgumentParser]

COMPARED: Final = {device: (*names, "plan", pytorch_baseline.NAME)
                   for device, names in (("cpu", CPU_ALGORITHMS), ("cuda", GPU_ALGORITHMS))}  # fmt: skip
"""The algorithms of ``lab conv`` on each device."""

DESCRIPTION: Final = "Benchmarks of kernels and networks on this machine. See COMMAND --help."
DIGITS: Final = "folder with the four MNIST files; without it, digits are generated"
EXAMPLES: Final = """examples:
  leafclinic lab conv --examples 512               convolution algorithms on generated digits, with PyTorch
  leafclinic lab conv --data MNIST --algorithms plan --learning-rate 0.01 0.05 0.2 --examples 2048 8192
  leafclinic lab matmul --sizes 1024 4096          GFLOP/s of every implementation, with cuBLAS and the peak
  leafclinic lab kernels --ops conv2d dense        every kernel verified, then timed
  leafclinic lab algorithms --json table.json      a training iteration, from naive kernels to the fastest
  leafclinic lab roofline --png roof.png           roofline of a training step
  leafclinic lab mnist train --data MNIST          then: mnist predict --photos PHOTO
"""


def read_whole(text: str) -> int:
    """A whole number from 1 to 999,999,999. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 999,999,999")
    return int(text)


def read_rate(text: str) -> float:
    """A learning rate, finite and above 0. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="leafclinic lab", description=DESCRIPTION,
                                     epilog=f"{EXAMPLES}\n\n{EXIT_CODES}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str, more: str = "", device: str = "auto",
                figures: bool = True) -> argparse.ArgumentParser:  # fmt: skip
        made = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}. {more}".strip())
        if device:
            made.add_argument("--device", default=device, choices=DEVICES, help="auto: the GPU if there is one")
        add_gpu(made)
        if figures:
            made.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
            made.add_argument("--png", type=Path, metavar="FILE", help="write a plot to this file")
        return made

    for add in (add_convolutions, add_kernels, add_networks, add_digits):
        add(command)
    return parser


def add_convolutions(command: AddCommand) -> None:
    conv = command("conv", "compare convolution algorithms: time per training iteration and accuracy",
                   "A small CNN (two 5x5 convolutions of 8 filters, max pooling, dense 128, dense 10) learns MNIST "
                   "with each algorithm from the same weights; PyTorch, where installed, is the baseline. "
                   "\"faster by\" is relative to the first algorithm.")
    conv.add_argument("--data", type=Path, metavar="FOLDER", help=DIGITS)
    conv.add_argument("--batch", type=read_whole, nargs="+", default=[32, 64], metavar="N", help="default: 32 64")
    conv.add_argument("--examples", type=read_whole, nargs="+", default=[2048], metavar="N",
                      help="number of training digits; default: 2048")
    conv.add_argument("--learning-rate", type=read_rate, nargs="+", default=[0.05], metavar="R", help="default: 0.05")
    conv.add_argument("--padding", choices=tuple(PADDINGS), default="same", help="padding of both convolutions; "
                                                                                  "default: same")
    conv.add_argument("--algorithms", nargs="+", metavar="NAME", help="algorithms to compare: "
                      f"{', '.join(COMPARED['cpu'])} (GPU: {', '.join(COMPARED['cuda'])})")


def add_kernels(command: AddCommand) -> None:
    matmul = command("matmul", "compare matrix product implementations on the GPU with cuBLAS",
                     "Each implementation multiplies N x N matrices, and (32 x 27)(27 x 14884), a first layer as "
                     "im2col.", "cuda")
    matmul.add_argument("--sizes", type=read_whole, nargs="+", default=[512, 1024, 2048, 4096, 8192], metavar="N",
                        help="default: 512 1024 2048 4096 8192")
    command("depthwise", "compare depthwise and pointwise convolutions with the standard convolution",
            "On the GPU, also compares a bias in constant memory with one in global memory.")
    kernels = command("kernels", "verify every kernel of an op against float64 and time it",
                   "GPU times include the launch from Python; benchmarks.kernels measures without it.")
    kernels.add_argument("--ops", nargs="+", choices=(*CASES, *UPDATES), default=[*CASES, *UPDATES], metavar="OP",
                      help=", ".join((*CASES, *UPDATES)))


def add_networks(command: AddCommand) -> None:
    roofline = command("roofline", "roofline of the kernels of a training step",
                       "Prints the 25 slowest kernels; the plot shows all.")
    sweep = command("sweep", "photos per second by batch size and image size",
                    "Measures LeafClinic only; benchmarks.sweep compares with PyTorch.")
    algorithms = command("algorithms", "time of a training iteration by every algorithm",
                         "Forward and backward pass on the CPU and the GPU, photos on the device; PyTorch, if "
                         "installed, is the baseline. The levels below tensor_core are for teaching.")
    algorithms.add_argument("--modules", action="store_true", help="also time every module, such as a fire module")
    add_network(algorithms, "squeezenet1_0")
    add_network(roofline)
    add_network(sweep, batch=[1, 8, 32], image_size=[224], nargs="+")
    add_explain(command("explain", "show why each step of a plan uses its kernel",
                        "Lists every candidate with its cost in microseconds or the reason why it cannot run. Needs no "
                        "GPU. With a GPU it also shows what each step adds to the time of the captured plan.",
                        device="", figures=False))
    add_tune(command("tune", "measure which kernels and tiles are fastest on this GPU",
                     "All later plans on this GPU use the measurements. Run an interrupted command again to resume it. "
                     "Only a faster choice replaces an earlier one.", device="", figures=False))
    sweep.add_argument("--training", action="store_true", help="time training steps instead of inference")
    for made in (roofline, sweep):
        made.add_argument("--precision", choices=PRECISIONS, default="float32", help="default: float32")


def add_network(
    command: argparse.ArgumentParser, model: str = "squeezenet1_1", batch: Any = 32, image_size: Any = 224, **how: Any
) -> None:
    command.add_argument("--model", default=model, choices=sorted(MODELS), metavar="NAME",
                         help=f"one of {', '.join(MODELS)}; default: {model}")
    shown = " ".join(map(str, batch)) if isinstance(batch, list) else batch
    command.add_argument("--batch", type=read_whole, default=batch, metavar="N",
                         help=f"batch size; default: {shown}", **how)
    command.add_argument("--image-size", type=read_whole, default=image_size, metavar="PX", help="default: 224", **how)


def add_explain(explain: argparse.ArgumentParser) -> None:
    add_network(explain)
    explain.add_argument("--precision", choices=PRECISIONS, default="mixed", help="default: mixed")
    explain.add_argument("--capability", type=read_capability, metavar="MAJOR.MINOR",
                         help="compute capability of a GPU, such as 8.6; default: the GPU of this machine, else 9.0")
    explain.add_argument("--algorithm", default="auto", metavar="LEVEL", help="as in leafclinic train; default: auto")
    explain.add_argument("--training", action="store_true", help="explain a training step instead of inference")


def add_tune(tune: argparse.ArgumentParser) -> None:
    tune.add_argument("--model", nargs="+", default=[], choices=sorted(MODELS), metavar="NAME",
                      help=f"of {', '.join(MODELS)}; default: those of the GPU benchmark")
    tune.add_argument("--batch", type=read_whole, nargs="+", default=[], metavar="N", help="batch sizes")
    tune.add_argument("--precision", nargs="+", choices=PRECISIONS, default=[], metavar="NAME",
                      help=f"of {', '.join(PRECISIONS)}; default: mixed, and those of the GPU benchmark")
    tune.add_argument("--what", choices=("training", "inference", "both"), default="both", help="default: both")
    tune.add_argument("--budget", type=read_rate, default=0.0, metavar="MINUTES",
                      help="stop after this time; the same command resumes later")
    tune.add_argument("--out", type=Path, metavar="FILE", help="write this table, not the one in the user's cache")
    tune.add_argument("--commit", default="", metavar="HASH", help="commit of the sources, stored in the table")


def read_capability(text: str) -> tuple[int, int]:
    """A compute capability such as "8.6". Raises ArgumentTypeError."""
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a compute capability such as 8.6")
    return int(major), int(minor)


def add_digits(command: AddCommand) -> None:
    mnist = command("mnist", "MNIST digits: train on them, predict photographed digits, unpack them", figures=False)
    mnist.add_argument("what", choices=("train", "predict", "unpack"))
    mnist.add_argument("--photos", type=Path, nargs="+", default=[], metavar="PHOTO", help="photos of digits (predict)")
    mnist.add_argument("--data", type=Path, metavar="FOLDER", help=f"{DIGITS} (train, unpack)")
    mnist.add_argument("--out", type=Path, default=Path("digits"), metavar="FOLDER",
                       help="new folder for the digits as image files (unpack; default: digits)")
    mnist.add_argument("--recipe", choices=tuple(RECIPES), default="cnn",
                       help="cnn (default) and mlp reach 99, 98 %%; classic: the original course's perceptron (train)")
    mnist.add_argument("--epochs", type=read_whole, default=0, metavar="N", help="number of epochs (train; default: "
                                                                                 "the recipe's)")
    mnist.add_argument("--algorithm", default="auto", metavar="NAME",
                       help="kernels by name, such as cublas on a GPU (train; default: auto)")
    mnist.add_argument("--from", type=Path, dest="start", metavar="FILE",
                       help="continue from the weights of this model (train)")
    mnist.add_argument("--model-file", type=Path, default=Path("digits.safetensors"), metavar="FILE",
                       help="written by train, read by predict; default: digits.safetensors")
