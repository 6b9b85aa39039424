"""Single launches on arrays: on the GPU as in an emulated memory, outputs poisoned before each run."""

import numpy as np

from tests.helpers.emulated_gpu import Memory
from tests.helpers.gpu_network import open_hopper


class GpuMachine:
    """A GPU of compute capability 9.0 with the methods of `emulated_gpu.Machine` and its memory."""

    def __init__(self, launches):
        """Skips the test on another GPU. The kernels of all launches are compiled side by side."""
        self.device, self.blocks, self.memory = open_hopper(), {}, self
        self.stream = self.device.new_stream()
        self.device.load([launch.recipe for launch in launches])

    def reserve(self, size):
        from core.gpu.driver.memory import Block

        block = Block(size)
        block.put(np.full(block.size, 0xFF, np.uint8))
        self.blocks[block.address] = block
        return block.address

    place = Memory.place

    def put(self, address, array):
        self.blocks[address].put(array)

    def get(self, address, count, dtype):
        return self.blocks[address].get(count, dtype)

    def run(self, launch):
        function = self.device.load([launch.recipe])[launch.recipe]
        function.launch(launch.grid, launch.block, launch.shared, self.stream, launch.values)
        self.device.synchronize()

    def free(self):
        for block in self.blocks.values():
            block.close()
        self.blocks.clear()


class Output:
    """An array full of 0xFF, which are NaN as bf16 and as float32, until a launch writes it."""

    def __init__(self, memory, shape, dtype=np.uint16):
        self.memory, self.shape, self.dtype = memory, shape, np.dtype(dtype)
        self.address = memory.reserve(int(np.prod(shape)) * self.dtype.itemsize)

    def take(self):
        """What is there now; then it is full of 0xFF again."""
        found = self.memory.get(self.address, int(np.prod(self.shape)), self.dtype).reshape(self.shape)
        self.memory.put(self.address, np.full(found.nbytes, 0xFF, np.uint8))
        return found


def results(machine, launch, *outputs):
    """What a launch leaves in the outputs; a GPU must leave the same bits twice."""
    found = []
    for _ in range(1 + isinstance(machine, GpuMachine)):
        machine.run(launch)
        found.append([output.take() for output in outputs])
    for first, again in zip(found[0], found[-1], strict=True):
        assert first.tobytes() == again.tobytes()
    return found[0]
