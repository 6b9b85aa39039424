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
    found = {f"{name}, {photos} photos of {batch}": take_uneven_steps(ranks, photos, batch, 1, name, 64, 1e-3, "cuda")
             for name in NETWORKS for photos, batch in ((10, 10), (9, 32))}  # fmt: skip
    ranks.close()
    if ranks.rank == 0:
        sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
