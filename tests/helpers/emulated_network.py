"""The launches of a small network in an emulated GPU's memory: neighbouring steps run as plain Python."""

from dataclasses import replace

import numpy as np

from core.arena import lay_out
from core.gpu.frame import Frame
from core.gpu.launch import RELU
from core.gpu.lowering import write_launches
from core.gpu.sizes import block_sizes
from core.graph import PHOTO
from core.ops.activation import ACTIVATIONS
from core.ops.contract import Call, Mode
from core.ops.op_table import OPS
from core.program import Value, flatten_parameters, lower, name_parameters
from tests.helpers.emulated_gpu import Machine, Memory
from tests.helpers.gpu_network import AMPERE
from tests.helpers.rounded import of_bits

PHOTOS, REAL = 3, 2
"""Images of a batch, and those of them that count."""


def put_photo(frame, memory, photo, stored=np.float32):
    """Images that are transformed already, inside their border of zeros."""
    t, (images, height, width, _) = frame.tensor(Value(PHOTO, photo.shape[1:])), photo.shape
    (top, left, _, _), framed = frame.border, np.zeros((images, t.height, t.width, t.pitch))
    framed[:, top : top + height, left : left + width, :3] = photo
    memory.put(t.address, stored(framed))


def cut(values):
    """The upper half of float32 numbers: bf16 where they are exact."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


class Lowered:
    """The network's launches with addresses in an emulated memory, where every array is poison.

    `arena`: whether arrays share memory as in a plan; without it each has its own, and steps may run in any order.
    """

    def __init__(
        self, graph, precision, processors=1, training=True, batch=PHOTOS, arena=False, hardware=AMPERE, **more
    ):
        self.program = lower(graph, training, fused=RELU)
        gpu = replace(hardware, processors=processors)
        self.frame = frame = Frame(self.program, batch, precision, gpu, **more)
        self.layout = frame.layout
        write_launches(frame, accumulate=True)  # with all arrays
        self.memory = m = Memory(1 << 22)
        shared = lay_out(frame.lifetimes())
        at = {n: m.reserve(max(size, 64)) for n, size in block_sizes(frame, (), shared.bytes * arena).items()}
        own = {} if arena else {name: m.reserve(size) for name, size in frame.array_sizes.items()}
        self.addresses = at, own or {name: at["arena"] + offset for name, offset in shared.offsets.items()}
        self.write(False)
        m.put(at["control"], np.array([REAL], np.int32))
        m.put(at["tables"], frame.tables.whole())
        self.machine, self.steps = Machine(m), {s.node: s for s in self.program.steps}

    def write(self, accumulate):
        """Write all launches again; `accumulate` adds to the gradients of weights."""
        self.frame.restart(*self.addresses)
        write_launches(self.frame, accumulate)

    def put_weights(self, weights, rounded=cut):
        """`rounded`: the bits of bf16 of float32 numbers."""
        flat, places = flatten_parameters(weights, self.layout), self.frame.packs.whole()
        packed = np.where(places < 0, 0, flat[places.clip(0)]).astype(np.float32)
        self.memory.put(self.frame.block("weights"), flat)
        self.memory.put(self.frame.block("packed"), rounded(packed) if self.frame.element == 2 else packed)

    def stored(self, values):
        return cut(values) if self.frame.element == 2 else values

    def put(self, value, array, gradient=False):
        t = self.frame.tensor(value, gradient)
        whole = np.zeros((PHOTOS, t.height, t.width, t.pitch), np.float32)
        whole[..., : t.channels] = array
        self.memory.put(t.address, self.stored(whole))

    def get(self, value, gradient=False):
        t = self.frame.tensor(value, gradient)
        count = PHOTOS * t.height * t.width * t.pitch
        stored = self.memory.get(t.address, count, np.uint16 if t.element == 2 else np.float32)
        flat = of_bits(stored) if t.element == 2 else stored
        return flat.reshape(PHOTOS, t.height, t.width, t.pitch)[:REAL, ..., : t.channels]

    def gradient(self, name):
        flat = self.memory.get(self.frame.block("gradient"), self.layout.trained, np.float32)
        return name_parameters(flat, self.layout)[name]

    def running(self, name):
        flat = self.memory.get(self.frame.block("weights"), self.layout.size, np.float32)
        return name_parameters(flat, self.layout)[name]

    def run(self, forward, names):
        for launch in self.frame.launches:
            if launch.layer in names and (launch.direction == "forward") == forward:
                self.machine.run(launch)


def exact(array, element):
    """Values that survive being stored."""
    array = np.asarray(array, np.float32)
    return array if element == 4 else (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def references(lowered, weights, names, values, gradients):
    """Results of neighbouring steps by name, and gradients of their parameters by name, by the reference in float64.

    Values, after activations, and their gradients are added to `values` and `gradients` by buffer. The mask of the last
    step's activation is on its gradient already.
    """
    done, found, mode = {}, {}, Mode(training=True)
    for name in names:
        step = lowered.steps[name]
        inputs = [values[value.buffer] for value in step.inputs]
        owned = {p.role: weights[f"{name}.{p.role}"].astype(np.float64) for p in step.parameters}
        call = Call(step.attributes, inputs, owned, mode)
        done[name] = step, call, OPS[step.op].forward(call)
        out = done[name][-1].output
        values[step.output.buffer] = ACTIVATIONS[step.activation].value(out) if step.activation else out
    for name in reversed(names):
        step, call, result = done[name]
        dy, out = gradients[step.output.buffer], values[step.output.buffer]
        dy = ACTIVATIONS[step.activation].gradient(dy, out) if step.activation and name != names[-1] else dy
        back = OPS[step.op].backward(call, result, dy)
        found |= {f"{name}.{role}": gradient for role, gradient in back.parameters.items()}
        for value, gradient in zip(step.inputs, back.inputs, strict=True):
            gradients[value.buffer] = gradients.get(value.buffer, 0) + gradient
    return {name: result for name, (*_, result) in done.items()}, found
