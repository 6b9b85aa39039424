"""Photos that take no time: small noisy squares whose colour is their class."""

from pathlib import Path

import cv2
import numpy as np

COLOURS = {"green": (60, 160, 60), "brown": (40, 80, 140), "grey": (128, 128, 128)}


def write_photos(folder: Path, classes=("green", "brown"), each=12, side=16, noise=25, seed=0) -> Path:
    """A folder of classes of PNG photos; BGR colours with noise, a pure function of the seed."""
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for photo in range(each):
            rng = np.random.default_rng([seed, number, photo])
            pixels = np.array(COLOURS[name]) + rng.normal(0, noise, (side, side, 3))
            done, data = cv2.imencode(".png", np.clip(pixels, 0, 255).astype(np.uint8))
            assert done
            (folder / name / f"{photo:03d}.png").write_bytes(data.tobytes())
    return folder


def write_discs(folder: Path, classes, each, side) -> Path:
    """A folder of classes, given with their RGB colours: discs, which are leaves to the program, on grey paper."""
    rng = np.random.default_rng(3)
    for name, colour in classes.items():
        (folder / name).mkdir(parents=True)
        for i in range(each):
            photo = rng.normal(170, 6, (side, side, 3)).clip(0, 255).astype(np.uint8)
            if colour:
                cv2.circle(photo, (side // 2, side // 2), side // 4, colour, -1)
            cv2.imwrite(str(folder / name / f"{i}.png"), photo[..., ::-1])
    return folder
