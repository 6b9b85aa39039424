"""Ranks of MPI killed at random moments, 20 of 2 and 20 of 3 in each round: all end, and a resumed run has the bits of
a whole one.

    python -m benchmarks.killed_ranks [--rounds 3]

Any difference is an error; what is recorded are counts, and the seconds from a kill to the end of the last rank.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.record import Row, write_results
from tests.helpers.killed_ranks import kill_and_resume
from tests.helpers.tiny_photos import write_photos

KILLS, RANKS, FIRST_SEED = 20, (2, 3), 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="each with another seed")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photos = write_photos(folder / "photos")
        for seed in range(FIRST_SEED, FIRST_SEED + options.rounds):
            for ranks in RANKS:
                run = folder / f"{ranks}-{seed}"
                found.append({"seed": seed, **kill_and_resume(ranks, KILLS, photos, folder / "cache", run, seed)})
                print(found[-1], flush=True)
                save(found)


def save(found: list[dict[str, float]]) -> None:
    seeds = sorted({one["seed"] for one in found})
    sets = [[one for one in found if one["ranks"] == ranks] for ranks in RANKS]
    rows = [make_row(rounds) for rounds in sets if rounds]
    write_results("killed_ranks", rows, rounds=len(seeds), seeds=seeds, found=found)


def make_row(rounds: list[dict[str, float]]) -> Row:
    kills, longest = sum(one["kills"] for one in rounds), max(one["longest end, seconds"] for one in rounds)
    return Row(f"{rounds[0]['ranks']} ranks, longest end after {kills} kills", longest, {}, "s")


if __name__ == "__main__":
    main()
