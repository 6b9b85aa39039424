"""What the laboratory's command line takes: a sub-command for each study."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from core.errors import EXIT_CODES
from core.laboratory.kernel_comparison import CASES, UPDATES
from core.laboratory.mnist import RECIPES
from core.models.architectures import MODELS
from core.plan import DEVICES, PRECISIONS

AddCommand: TypeAlias = Callable[..., argparse.ArgumentParser]

DESCRIPTION: Final = "Classic networks and kernels, measured on this machine. COMMAND --help says more of each."
DIGITS: Final = "folder of MNIST's four files; without it, digits are generated"
EXAMPLES: Final = """examples:
  leafclinic lab conv --examples 512               ways to convolve on generated digits, beside PyTorch
  leafclinic lab conv --data MNIST --ways plan --learning-rate 0.01 0.05 0.2 --examples 2048 8192
  leafclinic lab matmul --sizes 1024 4096          GFLOP/s of every rung, share of cuBLAS and of the peak
  leafclinic lab ladder --ops conv2d dense         every kernel proved, then timed
  leafclinic lab roofline --png roof.png           a whole training step under the roof
  leafclinic lab mnist learn --data MNIST          then: mnist predict --photos PHOTO
"""


def read_whole(text: str) -> int:
    """A number of things: 1 or more. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
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
        made.add_argument("--device", default=device, choices=DEVICES, help="auto: the GPU where there is one")
        if figures:
            made.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
            made.add_argument("--png", type=Path, metavar="FILE", help="draw them into this file")
        return made

    for add in (add_convolutions, add_kernels, add_networks, add_digits):
        add(command)
    return parser


def add_convolutions(command: AddCommand) -> None:
    conv = command("conv", "ways to convolve: time of a training iteration, accuracy after it",
                   "A small CNN (two 5x5 convolutions of 8 filters, max pooling, dense 128, dense 10) learns MNIST "
                   "with each way from the same weights; PyTorch, where installed, is the baseline. "
                   "\"faster by\" is over the first way.")
    conv.add_argument("--data", type=Path, metavar="FOLDER", help=DIGITS)
    conv.add_argument("--batch", type=read_whole, nargs="+", default=[32, 64], metavar="N", help="default: 32 64")
    conv.add_argument("--examples", type=read_whole, nargs="+", default=[2048], metavar="N",
                      help="digits to train with, once each; default: 2048")
    conv.add_argument("--learning-rate", type=read_rate, nargs="+", default=[0.05], metavar="R", help="default: 0.05")
    conv.add_argument("--padding", choices=("same", "full"), default="same", help="of both convolutions")
    conv.add_argument("--ways", nargs="+", metavar="WAY", help="only these: naive, vectorised, vectorised_parallel, "
                      "im2col, im2col_parallel, plan, PyTorch (GPU: naive, shared, im2col, plan, PyTorch)")


def add_kernels(command: AddCommand) -> None:
    matmul = command("matmul", "the ladder of the matrix product on the GPU, beside cuBLAS",
                     "Each rung multiplies N x N matrices, and (32 x 27)(27 x 14884), a first layer unfolded.", "cuda")
    matmul.add_argument("--sizes", type=read_whole, nargs="+", default=[512, 1024, 2048, 4096, 8192], metavar="N",
                        help="default: 512 1024 2048 4096 8192")
    command("depthwise", "depthwise and pointwise against the standard convolution both replace",
            "On the GPU also a bias from constant memory against one from global memory.")
    rows = command("ladder", "every kernel of an op, held against float64 and timed",
                   "On the GPU a time here includes the launch from Python; benchmarks.kernels has it without.")
    rows.add_argument("--ops", nargs="+", choices=(*CASES, *UPDATES), default=[*CASES, *UPDATES], metavar="OP",
                      help=", ".join((*CASES, *UPDATES)))


def add_networks(command: AddCommand) -> None:
    roofline = command("roofline", "where the time of a training step goes, under the machine's roof",
                       "The 25 slowest kernels as a table, all of them in the picture.")
    sweep = command("sweep", "photos a second over batch and photo sizes",
                    "Ours alone; benchmarks.sweep has PyTorch beside it.")
    for made, batches in ((roofline, [32]), (sweep, [1, 8, 32])):
        several: dict[str, Any] = {"nargs": "+"} if made is sweep else {"nargs": 1}
        made.add_argument("--model", default="squeezenet1_1", help=f"one of {', '.join(MODELS)}")
        made.add_argument("--batch", type=read_whole, default=batches, metavar="N",
                          help=f"photos at a time; default: {' '.join(map(str, batches))}", **several)
        made.add_argument("--image-size", type=read_whole, default=[224], metavar="PX", help="default: 224", **several)
    add_explain(command("explain", "why each step of a plan runs the kernel that it runs",
                        "Every candidate, the reason against it or its cost in microseconds; needs no GPU.",
                        "cuda", figures=False))
    sweep.add_argument("--training", action="store_true", help="training steps instead of predictions")


def add_explain(explain: argparse.ArgumentParser) -> None:
    explain.add_argument("--model", default="squeezenet1_1", choices=sorted(MODELS), metavar="NAME",
                         help=f"one of {', '.join(MODELS)}")
    explain.add_argument("--batch", type=read_whole, default=32, metavar="N", help="photos at a time; default: 32")
    explain.add_argument("--image-size", type=read_whole, default=224, metavar="PX", help="default: 224")
    explain.add_argument("--precision", choices=PRECISIONS, default="mixed", help="default: mixed")
    explain.add_argument("--capability", type=read_capability, metavar="MAJOR.MINOR", default=(9, 0),
                         help="compute capability of the GPU: 7.5, 8.0, 8.6, 9.0 ...; default: 9.0")
    explain.add_argument("--algorithm", default="auto", metavar="LEVEL", help="as that of core.train; default: auto")
    explain.add_argument("--training", action="store_true", help="a training step instead of a prediction")


def read_capability(text: str) -> tuple[int, int]:
    """A compute capability such as "8.6". Raises ArgumentTypeError."""
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a compute capability such as 8.6")
    return int(major), int(minor)


def add_digits(command: AddCommand) -> None:
    mnist = command("mnist", "digits: learn them by presets, predict photographed ones, unpack them",
                    figures=False)
    mnist.add_argument("what", choices=("learn", "predict", "unpack"))
    mnist.add_argument("--photos", type=Path, nargs="+", default=[], metavar="PHOTO",
                       help="photographed digits (predict)")
    mnist.add_argument("--data", type=Path, metavar="FOLDER", help=f"{DIGITS} (learn, unpack)")
    mnist.add_argument("--out", type=Path, default=Path("digits"), metavar="FOLDER",
                       help="new folder for the digits as photos (unpack)")
    mnist.add_argument("--recipe", choices=tuple(RECIPES), default="cnn",
                       help="cnn and mlp reach 99 and 98 %%; classic is the lesson's own perceptron (learn)")
    mnist.add_argument("--epochs", type=read_whole, default=0, metavar="N", help="instead of the recipe's (learn)")
    mnist.add_argument("--model-file", type=Path, default=Path("digits.safetensors"), metavar="FILE",
                       help="written by learn, read by predict; default: digits.safetensors")
