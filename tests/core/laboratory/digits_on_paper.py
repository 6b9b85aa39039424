"""Twenty photographed digits, drawn: different pens, papers, angles and light, from OpenCV's fonts."""

import cv2
import numpy as np

FONTS = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_SCRIPT_SIMPLEX, cv2.FONT_HERSHEY_PLAIN)


def draw_digits():
    """(photo uint8 (H, W, 3), digit) twenty times, each digit twice."""
    return [(_draw(k % 10, np.random.default_rng([9, k])), k % 10) for k in range(20)]


def _draw(digit, rng):
    height, width = (int(v) for v in rng.integers(300, 900, 2))
    paper, pen = rng.integers(170, 250, 3), rng.integers(0, 90, 3)
    if rng.random() < 0.15:  # chalk on a board
        paper, pen = rng.integers(20, 60, 3), rng.integers(190, 250, 3)
    photo = np.empty((height, width, 3), np.float32)
    photo[:] = paper
    font = FONTS[int(rng.integers(0, len(FONTS)))]
    thick = int(min(height, width) * rng.uniform(0.02, 0.06))
    (w, h), _ = cv2.getTextSize(str(digit), font, 1, 1)
    size = min(height, width) * rng.uniform(0.4, 0.65) / max(w, h)
    at = (int(width / 2 - w * size / 2), int(height / 2 + h * size / 2))
    ink = np.zeros((height, width), np.uint8)
    cv2.putText(ink, str(digit), at, font, size, 255, thick, cv2.LINE_AA)
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), float(rng.uniform(-14, 14)), 1)
    turn[:, 2] += rng.uniform(-0.08, 0.08, 2) * min(height, width)
    share = cv2.warpAffine(ink, turn, (width, height))[..., None] / np.float32(255)
    photo = photo * (1 - share) + pen * share
    light = np.linspace(rng.uniform(0.7, 1), rng.uniform(0.7, 1), width)[None, :, None]
    photo = photo * light + rng.normal(0, 4, photo.shape)
    return np.clip(photo, 0, 255).astype(np.uint8)
