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
from core.ops.contract import Mode
from core.ops.op_table import OPS
from core.program import Value, flatten_parameters, lay_out_parameters, lower, name_parameters
from tests.helpers.emulated_gpu import Machine, Memory
from tests.helpers.gpu_network import AMPERE
from tests.helpers.rounded import of_bits

PHOTOS, REAL = 3, 2
"""Images of a batch, and those of them that count."""


def reserve(frame, memory):
    """Addresses of the blocks and of the arrays of a frame whose launches are written."""
    arena = lay_out(frame.lifetimes())
    at = {name: memory.reserve(max(size, 64)) for name, size in block_sizes(frame, (), arena.bytes).items()}
    memory.put(at["tables"], frame.all_tables())
    return at, {name: at["arena"] + offset for name, offset in arena.offsets.items()}


def put_photo(frame, memory, photo, stored=np.float32):
    """Images that are transformed already, inside their border of zeros."""
    t, (images, height, width, _) = frame.image(Value(PHOTO, photo.shape[1:])), photo.shape
    (top, left, _, _), framed = frame.border, np.zeros((images, t.height, t.width, t.pitch))
    framed[:, top : top + height, left : left + width, :3] = photo
    memory.put(t.address, stored(framed))


class Lowered:
    """The network's launches with addresses in an emulated memory."""

    def __init__(self, graph, precision, processors=1, whole=False, ranks=1, hardware=AMPERE):
        layout, program = lay_out_parameters(graph), lower(graph, True, fused=RELU)
        gpu = replace(hardware, processors=processors)
        self.frame = Frame(program, layout, PHOTOS, precision, gpu, whole=whole, ranks=ranks)
        write_launches(self.frame, True, False)
        self.memory = m = Memory(1 << 22)
        sizes = {
            "weights": 4 * layout.size, "gradient": 4 * layout.trained, "control": 4096, "logits": 256, "results": 256,
            "packed": 2 * self.frame.element * self.frame.packed_count, "tables": self.frame.all_tables().nbytes + 64,
        }  # fmt: skip
        at, arrays = ({n: m.reserve(size) for n, size in some.items()} for some in (sizes, self.frame.array_sizes))
        self.frame.restart(at, arrays)
        write_launches(self.frame, True, False)
        m.put(self.frame.block("control"), np.array([REAL], np.int32))
        m.put(self.frame.block("tables"), self.frame.all_tables())
        self.layout, self.program, self.machine = layout, program, Machine(m)
        self.steps = {s.node: s for s in program.steps}

    def put_weights(self, weights):
        flat, places = flatten_parameters(weights, self.layout), self.frame.all_packs()
        packed = np.where(places < 0, 0, flat[places]).astype(np.float32)
        self.memory.put(self.frame.block("weights"), flat)
        self.memory.put(self.frame.block("packed"), self.stored(packed))

    def stored(self, values):
        return (values.view(np.uint32) >> 16).astype(np.uint16) if self.frame.element == 2 else values

    def put(self, value, array, gradient=False):
        t = self.frame.image(value, gradient)
        whole = np.zeros((PHOTOS, t.height, t.width, t.pitch), np.float32)
        whole[..., : t.channels] = array
        self.memory.put(t.address, self.stored(whole))

    def get(self, value, gradient=False):
        t = self.frame.image(value, gradient)
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
        done[name] = step, inputs, owned, OPS[step.op].forward(step.attributes, inputs, owned, mode)
        out = done[name][3].output
        values[step.output.buffer] = ACTIVATIONS[step.activation].value(out) if step.activation else out
    for name in reversed(names):
        step, inputs, owned, result = done[name]
        dy, out = gradients[step.output.buffer], values[step.output.buffer]
        dy = ACTIVATIONS[step.activation].gradient(dy, out) if step.activation and name != names[-1] else dy
        back = OPS[step.op].backward(step.attributes, inputs, owned, result, dy, mode)
        found |= {f"{name}.{role}": gradient for role, gradient in back.parameters.items()}
        for value, gradient in zip(step.inputs, back.inputs, strict=True):
            gradients[value.buffer] = gradients.get(value.buffer, 0) + gradient
    return {name: result for name, (*_, result) in done.items()}, found
