"""Programmatic dependent launch: a kernel waits for the previous one before it touches what that one may write."""

import re
from dataclasses import replace

import pytest

from core.gpu.compilation import generations
from core.gpu.compilation.compiler import compile_kernel
from core.gpu.hardware import typical
from core.gpu.lowering import overlap_launches
from tests.core.gpu.test_lowering import frame_of
from tests.helpers.resources import check_registers

MEMORY = re.compile(r"\b(ld\.global|st\.global|cp\.async|red\.|atom\.|ld\.volatile|prefetch)")
OWN = ("make_small_convolution", "make_fire_halo", "make_expand_depthwise")
"""Factories of kernels that have a wait of their own."""


def recipes():
    """Every kernel of a prediction of one photo on Hopper, by factory."""
    found = {}
    for name in ("mobilenetv2", "squeezenet1_0", "squeezenet1_1"):
        frame = frame_of(name, training=False, batch=1, size=224, hardware=typical())
        for launch in overlap_launches(frame, frame.launches):
            found.setdefault(launch.recipe.factory, {})[launch.recipe] = None
    return {factory: list(made) for factory, made in found.items()}


ALL = recipes()
RECIPES = {factory: max(made, key=lambda r: r.threads) for factory, made in ALL.items()}
"""Of each factory the kernel of most threads a block, whose threads have the fewest registers."""


@pytest.mark.parametrize("factory", sorted(RECIPES))
def test_a_kernel_waits_before_it_touches_memory(factory):
    ptx, _ = compile_kernel(RECIPES[factory], (9, 0))
    head, tail = ptx.split(generations.WAIT)  # once
    assert tail.lstrip().startswith(generations.LAUNCH_DEPENDENTS)
    before = MEMORY.findall(head[head.index(".visible .entry") :])
    assert head.count("ld.global.nc") == len(before), "something else than constants is touched before the wait"
    assert (len(before) > 0) == (factory in OWN)
    assert not re.search(r"^\s*(@%p\d+ )?(bra|ret)", head[head.index("\n{") :], re.MULTILINE) or factory in OWN
    assert "ld.global.nc" not in tail, "the assembler may move such a load in front of the wait"
    check_registers(ptx, (9, 0))


def test_a_gpu_without_dependent_launch_gets_the_kernel_without_the_wait():
    ptx, _ = compile_kernel(replace(RECIPES[OWN[0]], dependent=False), (8, 0))
    assert "griddepcontrol" not in ptx
    check_registers(ptx, (8, 0))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [r for f in OWN for r in ALL[f]], ids=lambda r: f"{r.factory} {r.constants}")
def test_every_measured_block_fits_into_registers(recipe):
    ptx, _ = compile_kernel(recipe, (9, 0))
    check_registers(ptx, (9, 0))


def test_the_others_of_a_chain_are_dependent_and_those_on_two_streams_or_of_larger_batches_are_not():
    one, three = (frame_of("cnn", training=False, batch=batch, hardware=typical()) for batch in (1, 3))
    chain = overlap_launches(one, one.launches)
    assert [n.dependent for n in chain] == [False, *(True for _ in chain[1:])]
    assert all(n.recipe.dependent for n in chain)
    assert overlap_launches(three, three.launches) == three.launches
    beside = [replace(n, stream=i % 2) for i, n in enumerate(one.launches)]
    assert overlap_launches(one, beside) == beside
