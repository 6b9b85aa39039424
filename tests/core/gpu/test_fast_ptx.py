"""The fast kernels compile without a GPU, keep everything in registers and use the tensor cores."""

from itertools import product

import pytest

from core.gpu.compilation.compiler import SOURCES, compile_kernel
from core.gpu.hardware import typical
from tests.core.gpu.test_lowering import frame_of
from tests.helpers.compiled_sources import files_read_by
from tests.helpers.resources import CAPABILITIES, assemble, check_overlapping, check_registers
from tests.helpers.single_kernels import written_alone
from tests.helpers.texts import ROOT

MATRIX = ("make_convolution", "make_weight_gradient", "make_wide", "make_narrow")
CHANNELS = ("make_wide", "make_narrow")
"""Factories of one kernel for each count of channels; that of most channels needs the most registers."""
ELSEWHERE = ("make_image_sum", "make_depthwise_strips", "make_head", "make_pointwise_convolution", "make_kernel",
             "make_product", "make_gemv", "make_gemv_transposed", "outer_product")
"""Factories whose kernels other tests compile and assemble."""


def recipes():
    """One kernel of every other factory, and of the matrix kernels in float32 too, by name."""
    found = {}
    networks = (("squeezenet1_1", "mixed"), ("squeezenet1_1", "float32"), ("mobilenetv2", "mixed"), ("rare", "mixed"),
                ("mobilenetv3_small", "mixed"))
    for name, precision in networks:
        for launch in frame_of(name, precision).launches:
            recipe = launch.recipe
            if (precision == "mixed" and recipe.factory not in ELSEWHERE) or recipe.factory in MATRIX:
                first = recipe.constants[: 2 if recipe.factory == "make_combine" else 1]
                first += recipe.constants[2:3] if recipe.factory in CHANNELS else ()  # forward, gradient
                first += recipe.constants[3:] if recipe.module.startswith("ops.conv") else ()  # for groups
                found.setdefault(f"{recipe.factory} {first}", recipe)
    for recipe in (launch.recipe for launch in written_alone()):
        if recipe.factory not in {*ELSEWHERE, *HOPPER, *(one.factory for one in found.values())}:
            found[recipe.factory] = recipe
    return found


def hopper_recipes():
    """Every kernel of Hopper's own that SqueezeNet uses, in training and prediction, at both batches of the table."""
    found = {}
    for name, training, batch in product(("squeezenet1_0", "squeezenet1_1"), (True, False), (32, 256)):
        for launch in frame_of(name, training=training, batch=batch, size=224, hardware=typical()).launches:
            if launch.recipe.factory in HOPPER:
                found[f"{launch.recipe.factory} {launch.recipe.constants}"] = launch.recipe
    return found


HOPPER = ("make_image_pool", "make_image_gradient", "make_resident_halo", "make_row_weight_gradient", "make_halo_tma")
"""Those of 1x1 convolutions are in `test_sm90_pointwise`."""
RECIPES, ON_HOPPER = recipes(), hopper_recipes()
NOT_HOPPER = {"make_convolution ('float32',)": (8, 0)}
"""Kernels compiled for the oldest and the newest generation instead."""


def everyday():
    """Of each factory the kernel of most threads a block, which have the fewest registers, and of most channels."""
    found = {}
    for name, recipe in sorted(ON_HOPPER.items()):
        if recipe.factory not in found or recipe.threads >= ON_HOPPER[found[recipe.factory]].threads:
            found[recipe.factory] = name
    return set(found.values())


EVERYDAY, SLOW = everyday(), pytest.mark.slow


@pytest.mark.parametrize("name", [n if n in EVERYDAY else pytest.param(n, marks=SLOW) for n in sorted(ON_HOPPER)])
def test_a_kernel_of_hopper_fits_into_registers_and_its_products_overlap(name):
    ptx, _ = compile_kernel(ON_HOPPER[name], (9, 0))
    assert "wgmma.mma_async" in ptx
    check_overlapping(ptx)


def narrower(name):
    """Whether its factory makes kernels of more channels too."""
    own = RECIPES[name]
    same = [recipe.constants[0] for recipe in RECIPES.values() if recipe.factory == own.factory in CHANNELS]
    return bool(same) and max(same) > own.constants[0]


@pytest.mark.parametrize("name", [pytest.param(n, marks=SLOW) if narrower(n) else n for n in sorted(RECIPES)])
def test_a_fast_kernel_fits_into_registers(name):
    recipe, capability = RECIPES[name], NOT_HOPPER.get(name, (9, 0))
    ptx, _ = compile_kernel(recipe, capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    check_registers(ptx, capability)
    assert ("mma.sync" in ptx) == (recipe.factory in MATRIX)


def test_dense_layers_of_few_images_fit_into_registers():
    recipes = {launch.recipe for launch in frame_of("mlp", "float32", batch=8, size=28).launches}
    found = [check_registers(compile_kernel(one, (9, 0))[0], (9, 0)) for one in recipes if one.module.endswith("gemv")]
    assert len(found) == 3  # one of each direction: the first layer reads photos with a border


def test_every_source_of_device_code_and_its_numbers_decides_what_is_compiled_again():
    hashed = {file for pattern in SOURCES for file in (ROOT / "core").glob(pattern)}
    missing = files_read_by(hashed) - hashed
    assert not missing, "they belong to SOURCES in core/gpu/compilation/compiler.py"


@SLOW
@pytest.mark.parametrize("capability", CAPABILITIES[1:], ids=lambda c: f"sm_{c[0]}{c[1]}")
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_fast_kernel_compiles_for_every_generation_from_8_0_on(name, capability):
    ptx, _ = compile_kernel(RECIPES[name], capability)
    assemble(ptx, capability)
