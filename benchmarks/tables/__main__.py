"""Write every table of figures in README and docs from `benchmarks/results/`.

    python -m benchmarks.tables             write the pages and the plots
    python -m benchmarks.tables --check     exit with status 1 if a page is out of date
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.kernels_pictures import draw_all
from benchmarks.tables.pages import outdated, write_pages
from benchmarks.tables.scaling import draw_scaling


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    if parser.parse_args().check:
        stale = outdated()
        for page in stale:
            print(f"{page} is out of date: run python -m benchmarks.tables")
        return int(bool(stale))
    write_pages()
    draw_all()
    draw_scaling()
    return 0


if __name__ == "__main__":
    sys.exit(main())
