"""A plan that executes the NumPy references: slow, without a device; trainers and plans are compared with it."""

import time

import numpy as np

from core.device import KernelTime, Memory, Plan, StepResult
from core.graph import PHOTO
from core.ops import photo
from core.ops.contract import Mode
from core.ops.network import forward, loss_and_gradients
from core.optim import optimizer as optimizer_reference
from core.program import lay_out_parameters, lower, name_parameters


def network_inputs(graph, batch, kept=None, backgrounds=None):
    """The photos of a batch as the network sees them; kept: those that its index counts if it brings none."""
    node, photos = graph.node(PHOTO), kept if batch.photos is None else batch.photos
    mean, std = node.attributes["mean"], node.attributes["std"]
    return photo.transform(photos, batch.augmentation, node.shape[:2], mean, std, backgrounds, batch.index)


def exact(arrays):
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def reference_values(graph, weights, batch):
    """Every value of a prediction, by name, in float64."""
    return forward(graph, exact(weights), network_inputs(graph, batch).astype(np.float64))


def reference_gradients(graph, weights, batch, mode=None):
    """Loss and gradients of a batch in float64 (`core.ops.network.loss_and_gradients`)."""
    x = network_inputs(graph, batch).astype(np.float64)
    return loss_and_gradients(graph, exact(weights), x, batch.labels, mode, batch.targets)


def flatten_trained(arrays, layout):
    """Trained parameters, or their gradients, in one flat array as plans keep them; 0 where there is none."""
    flat = np.zeros(layout.trained, np.float32)
    for name, array in arrays.items():
        if (first := layout.offsets[name][0]) < layout.trained:
            flat[first : first + np.size(array)] = np.ravel(array)
    return flat


def decay_mask(layout):
    """Which floats of the flat parameters have weight decay."""
    mask = np.zeros(layout.trained, bool)
    for first, end in layout.decayed:
        mask[first:end] = True
    return mask


class ReferencePlan(Plan):
    """Float32, one thread, everything allocated anew each step."""

    def __init__(self, graph, *, batch, training, optimizer, outputs=(), frozen=(), seed=0):
        self.graph, self.batch, self.training = graph, batch, training
        self.program = lower(graph, training, outputs)
        self.layout = lay_out_parameters(graph)
        self.memory = Memory(4 * self.layout.size, 4 * self.layout.trained, 8 * self.layout.trained, 0, 0, 0)
        self._optimizer, self._outputs, self._frozen, self._seed = optimizer, tuple(outputs), set(frozen), seed
        self._weights = {n: np.zeros(p.shape, np.float32) for n, p in graph.parameters().items()}
        self._gradient = np.zeros(self.layout.trained, np.float32)
        self._parts = self._seen = 0
        self._step = 0
        self._kept = self._backgrounds = None
        self.closed = False
        self._state = optimizer_reference.initial_state(optimizer, self._gradient)
        self._decayed = decay_mask(self.layout)

    def load(self, weights):
        assert set(weights) == set(self._weights)
        self._weights = {name: np.array(weights[name], np.float32) for name in self._weights}
        if "average" in self._state:
            self._state["average"] = flatten_trained(self._weights, self.layout)

    def weights(self):
        return {name: array.copy() for name, array in self._weights.items()}

    def state(self):
        return {**{n: a.copy() for n, a in self._state.items()}, "step": np.array(self._step, np.int64)}

    def load_state(self, state):
        self._step = int(state["step"])
        self._state = {name: np.array(state[name], np.float32) for name in self._state}

    def predict(self, batch):
        with np.errstate(all="ignore"):
            values = forward(self.graph, self._weights, self._photos(batch), Mode())
        return {"logits": values[self.graph.output], **{name: values[name] for name in self._outputs}}

    def gradient(self, batch, accumulate=False, share=1.0):
        if not accumulate:
            self._parts, self._seen = 0, batch.first
        mode = Mode(True, self._seed, self._step, self._seen)
        photos = self._photos(batch)
        with np.errstate(all="ignore"):
            trace = loss_and_gradients(self.graph, self._weights, photos, batch.labels, mode, batch.targets)
        flat = np.float32(share) * flatten_trained(trace.gradients, self.layout)
        self._gradient = self._gradient + flat if accumulate else flat
        self._parts, self._seen = self._parts + 1, self._seen + len(batch.labels)
        self._weights |= trace.updated
        with np.errstate(all="ignore"):
            norm = optimizer_reference.gradient_norm(self._gradient / self._parts)
        return StepResult(share * trace.loss, trace.correct, len(batch.labels), norm)

    def announce(self, batch):
        self.announced = batch

    def gradients(self):
        return name_parameters(self._gradient, self.layout)

    def update(self, learning_rate):
        self._step += 1
        weights, gradient = flatten_trained(self._weights, self.layout), self._gradient / np.float32(self._parts)
        flat, self._state = optimizer_reference.update(self._optimizer, weights, gradient, self._state, self._decayed,
                                                       learning_rate, self._step)  # fmt: skip
        self._weights |= {n: a for n, a in name_parameters(flat, self.layout).items() if n not in self._frozen}

    def average(self, result):
        return result

    def fits(self, size):
        return True

    def keep_photos(self, photos, stream=False):
        self._kept = photos
        return not stream

    def keep_backgrounds(self, backgrounds):
        self._backgrounds = backgrounds

    def borrow_photos(self, owner):
        self._kept, self._backgrounds = owner._kept, owner._backgrounds

    def time_kernels(self, batch):
        begin = time.perf_counter()
        if not self.training:
            self.predict(batch)
        return [KernelTime("all", "forward", "reference", 1000 * (time.perf_counter() - begin), 0, 0, 0.0)]

    def kernels(self):
        return [(step.node, "forward", "reference") for step in self.program.steps]

    def close(self):
        self.closed = True

    def _photos(self, batch):
        return network_inputs(self.graph, batch, self._kept, self._backgrounds)
