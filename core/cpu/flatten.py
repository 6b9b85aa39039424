"""Flattened images for steps that need them flat: buffers have borders, so that flatten is not always free.

A dense layer reads an image as one window, and elementwise steps keep its height and width; every
other step gets a copy.
"""

from __future__ import annotations

from dataclasses import replace

from core.cpu.geometry import INHERITS
from core.ops.contract import Cost, volume
from core.program import Program, Step, Value


def spell_out_flatten(program: Program) -> Program:
    """The program with a copy step "flatten" before each step that cannot read its flattened input in place."""
    buffers = dict(program.buffers)
    image = {name for name, shape in buffers.items() if len(shape) == 3 and volume(shape[:2]) > 1}
    steps: list[Step] = []
    copies: dict[Value, Value] = {}
    for step in program.steps:
        if step.op in INHERITS and len(step.output.shape) == 1 and step.inputs[0].buffer in image:
            if step.output.buffer == step.node:
                image.add(step.output.buffer)
                steps.append(step)
                continue
        elif step.op == "dense":
            steps.append(step)
            continue
        inputs = []
        for value in step.inputs:
            if len(value.shape) == 1 and value.buffer in image:
                if value not in copies:
                    name = f"{value.buffer}:{value.channel} flat"
                    buffers[name] = value.shape
                    copies[value] = Value(name, value.shape)
                    cost = Cost(0, 8 * volume(value.shape))
                    steps.append(Step(name, "flatten", {}, (value,), copies[value], "", (), cost))
                inputs.append(copies[value])
            else:
                inputs.append(value)
        steps.append(replace(step, inputs=tuple(inputs)))
    return replace(program, steps=tuple(steps), buffers=buffers)
