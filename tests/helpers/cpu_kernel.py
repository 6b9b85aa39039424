"""The fastest kernel of an op on the CPU, by itself."""

from core.cpu.kernel_entries import CPU
from core.cpu.single import Single
from tests.helpers.compare import poisoned


def forward(case, given, threads=1, training=False):
    """Its output, and the `Single` that computed it."""
    single = Single(case, CPU.of(case.op, "forward")[-1].writers, threads, training)
    single.read(given)
    single.run(single.forward)
    out = poisoned((case.batch, *case.output))
    single.write_forward({"out": out})
    return out, single
