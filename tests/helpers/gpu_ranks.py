"""One rank of `tests/core/distributed/test_gpu_ranks.py`; rank 0 prints the largest differences as JSON."""

import json
import sys

from core.distributed.rank_environment import choose_gpu, connect, find_rank
from tests.helpers.ranks import take_uneven_steps

NETWORKS = ("squeezenet1_1_bn", "mobilenetv2")


def main() -> None:
    environment = find_rank()
    choose_gpu(environment)
    ranks = connect(environment, "cuda")
    found = {f"{name}, {photos} photos": take_uneven_steps(ranks, photos, 24, 1, name, 64, 1e-3, "cuda", 1)
             for name in NETWORKS for photos in (24, 21)}  # fmt: skip
    ranks.close()
    if ranks.rank == 0:
        sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
