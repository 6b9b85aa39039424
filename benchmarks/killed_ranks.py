"""Ranks of MPI killed at random moments, 20 of 2 and 20 of 3: all end, and a resumed run has the bits of a whole one.

    python -m benchmarks.killed_ranks

Any difference is an error; what is recorded are counts, and the seconds from a kill to the end of the last rank.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.record import Row, write_results
from tests.helpers.killed_ranks import kill_and_resume
from tests.helpers.tiny_photos import write_photos

KILLS = 20


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, found = Path(name), []
        photos = write_photos(folder / "photos")
        for ranks in (2, 3):
            found.append(kill_and_resume(ranks, KILLS, photos, folder / "cache", folder / f"of-{ranks}"))
            print(found[-1], flush=True)
    rows = [Row(f"{one['ranks']} ranks, longest end after {one['kills']} kills", one["longest end, seconds"], {}, "s",
                float("nan")) for one in found]  # fmt: skip
    write_results("killed_ranks", rows, found=found)


if __name__ == "__main__":
    main()
