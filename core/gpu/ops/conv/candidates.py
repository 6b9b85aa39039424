"""Candidates for convolutions."""

from __future__ import annotations

from typing import Final

from core.gpu.select import BACKWARD, BF16, FORWARD, INPUT, WEIGHT, Candidate, Case
from core.gpu.writers import backward_steps, forward_steps, pointwise_steps
from core.gpu.writers.few import convolutions
from core.gpu.writers.hopper import point_steps, window_steps
from core.gpu.writers.norm_pairs import expands, projects


def _convolve(case: Case) -> None:
    forward_steps.convolve(case.frame, case.step, case.frame.following(case.step))


def _refuse_expand(case: Case) -> str:
    return "" if expands(case.frame, case.step) else "It trains 1x1 convolutions to many channels before a batch norm."


def _refuse_project(case: Case) -> str:
    return "" if projects(case.frame, case.step) else "It trains 1x1 convolutions to few channels between batch norms."


def _refuse_pooled_image(case: Case) -> str:
    suits = window_steps.pools_photo(case.frame, *case.steps)
    return "" if suits else "It computes a convolution of the image and the 3x3 max pool behind it, on Hopper."


def _refuse_pooled_gradient(case: Case) -> str:
    suits = case.frame.wants(case.steps[1].inputs[0]) and window_steps.pools_photo(case.frame, *case.steps)
    return "" if suits else "It computes gradients of a convolution of the image before a 3x3 max pool, on Hopper."


def _refuse_fire(case: Case) -> str:
    suits = forward_steps.is_small_fire(case.frame, *case.steps)
    return "" if suits else "It computes the expand layers of small fires."


def _refuse_fire_gradient(case: Case) -> str:
    return "" if forward_steps.is_fire(*case.steps) else "It computes the expand layers of a fire."


def _refuse_pooled(case: Case) -> str:
    suits = convolutions.pools_first(case.frame, *case.steps)
    return "" if suits else "It computes a max pool of few pixels and the 1x1 convolution behind it."


def _refuse_added(case: Case) -> str:
    suits = convolutions.adds(case.frame, *case.steps)
    return "" if suits else "It computes a convolution of few pixels and the sum behind it."


def _refuse_both(case: Case) -> str:
    tile = point_steps.gradients_tile(case.frame, case.step) if case.frame.wants(case.step.inputs[0]) else None
    return "" if tile else "It computes both gradients of 1x1 convolutions that it was measured the fastest for."


CANDIDATES: Final = (
    Candidate("tensor_core", ("conv2d",), FORWARD, _convolve, "the fastest matrix product that suits", efficiency=0.35),
    Candidate("expand", ("conv2d",), FORWARD, lambda c: pointwise_steps.expand(c.frame, c.step),
              "from few channels to many, with the sums of the batch norm behind", "auto", 0.6, _refuse_expand,
              arithmetics=BF16),
    Candidate("project", ("conv2d",), FORWARD, lambda c: pointwise_steps.project(c.frame, c.step),
              "from many channels to few, batch norm applied on the way in, sums of the next one made", "auto", 0.6,
              _refuse_project, arithmetics=BF16),
    Candidate("image_pool", ("conv2d", "max_pool"), FORWARD,
              lambda c: c.frame.add(window_steps.forward_pooled(c.frame, *c.steps)),
              "convolution of the image and the max pool behind it, by wgmma", "auto", 0.6, _refuse_pooled_image,
              (9, 0), BF16),
    Candidate("fire_expand", ("conv2d", "conv2d"), FORWARD,
              lambda c: c.frame.add(forward_steps.expand_launch(c.frame, *c.steps)),
              "1x1 and 3x3 halves of a small fire in one launch", "auto", 0.5, _refuse_fire),
    Candidate("pool_few", ("max_pool", "conv2d"), FORWARD,
              lambda c: c.frame.add(convolutions.pooled_forward(c.frame, *c.steps)),
              "a max pool done while a 1x1 convolution loads, for few pixels", "auto", 0.5, _refuse_pooled,
              arithmetics=BF16),
    Candidate("add_few", ("conv2d", "add"), FORWARD,
              lambda c: c.frame.add(convolutions.forward_added(c.frame, *c.steps)),
              "the sum behind a convolution made on the way out, for few pixels", "auto", 0.5, _refuse_added,
              arithmetics=BF16),
    Candidate("expand", ("conv2d",), BACKWARD, lambda c: pointwise_steps.expand_backward(c.backward, c.step),
              "both gradients from that of the batch norm behind", "auto", 0.6, _refuse_expand, arithmetics=BF16),
    Candidate("project", ("conv2d",), BACKWARD, lambda c: pointwise_steps.project_backward(c.backward, c.step),
              "both gradients, that of the input with the sums of its batch norm", "auto", 0.6, _refuse_project,
              arithmetics=BF16),
    Candidate("tma_points", ("conv2d",), BACKWARD, lambda c: backward_steps.both_gradients(c.backward, c.step),
              "both gradients of a 1x1 convolution in one pass over TMA tiles", "auto", 0.6, _refuse_both, (9, 0),
              BF16),
    Candidate("tensor_core", ("conv2d",), INPUT, lambda c: backward_steps.convolution_input(c.backward, c.step),
              "the implicit product with the filters rotated", efficiency=0.35),
    Candidate("fire_expand", ("conv2d", "conv2d"), INPUT,
              lambda c: backward_steps.fire_input(c.backward, *c.steps),
              "the input gradient of both halves of a fire in one launch", "auto", 0.5, _refuse_fire_gradient),
    Candidate("tensor_core", ("conv2d",), WEIGHT, lambda c: backward_steps.weights(c.backward, c.step),
              "sum over pixels split between blocks, parts added in order; the bias is one more product with ones",
              efficiency=0.35),
    Candidate("image_pool", ("conv2d", "max_pool"), BACKWARD,
              lambda c: backward_steps.photo_pool(c.backward, *c.steps),
              "weight gradients of the image's convolution from what is behind its max pool, by wgmma", "auto", 0.6,
              _refuse_pooled_gradient, (9, 0), BF16),
)  # fmt: skip
