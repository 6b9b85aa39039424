"""Reading through a mapped file leaves the process small."""

import subprocess
import sys

import numpy as np
import pytest

READ = """
import re, sys
import numpy as np
from core.data import array_file
from core.data.loader import Loader

def resident():
    return int(re.search(r"RssFile:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

array_file.RELEASE_BYTES = int(sys.argv[2])
photos = np.memmap(sys.argv[1], np.uint8, "r", shape=(2000, 128, 128, 3))
loader = Loader(photos, np.arange(2000), np.zeros(2000, np.int32), batch=40, size=128, training=True)
for batch in loader.batches(0):
    pass
before = resident()
largest = 0
for batch in loader.batches(1):
    largest = max(largest, resident() - before)
print(resident(), int(batch.photos.sum()))
"""


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="reads the process's memory from /proc")
def test_an_epoch_leaves_no_mapped_pages_behind(tmp_path):
    file = tmp_path / "photos"
    np.random.default_rng(0).integers(0, 255, 2000 * 128 * 128 * 3, np.uint8).tofile(file)
    sizes, sums = [], []
    for limit in (1, 1 << 40):
        done = subprocess.run([sys.executable, "-c", READ, str(file), str(limit)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        sizes.append(float(done.stdout.split()[0]))
        sums.append(done.stdout.split()[1])
    assert sums[0] == sums[1], "pages that were given back read the same"
    assert sizes[1] - sizes[0] > 60, f"{sizes} MB: 94 MB of photos were read"
