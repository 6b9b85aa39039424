"""Loads batches of photos ahead of training, in an order that is a pure function of seed and epoch."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from core.data.array_file import MappedPages
from core.data.augment import draw_augmentation
from core.data.map_ahead import map_ahead
from core.data.mixing import BackgroundReplacement, Mixing
from core.data.philox import uniforms
from core.device import PhotoBatch
from core.ops.contract import Array
from core.ops.photo import identity_augmentation

SAMPLING: Final = {"natural": 1.0, "sqrt": 0.5, "balanced": 0.0}
"""A class of n photos is drawn in proportion to n to this power."""
_ORDER: Final = 0x4F524452
AHEAD: Final = 5
"""Batches gathered ahead, with the one that is being gathered."""
DRAWN: Final = 512
"""Photos whose augmentation is drawn at once: fewer take as long, and the interpreter serves no other thread."""


class Loader:
    """Iterates over the batches of an epoch.

    photos: uint8 ``(slots, side, side, 3)``, usually the cache's; slots: int64 ``(N,)``, the slot of each photo of this
    split; labels: int32 ``(N,)``, -1 of photos to evaluate. Training shuffles, augments and drops an incomplete last
    batch (unless it is the only one); otherwise all photos come in order and unchanged. replacement, mixing: of
    backgrounds and of photos with their labels, in training; targets: of every label, ``(labels, classes)``, for a loss
    that reads targets; resident: the photos are on the device already (`Plan.keep_photos(photos)`), and batches carry
    their slots in `index`. Of several ranks, each gets a share of every training batch, in parts of at most `part`
    photos, and every `ranks`-th batch of the others.
    """

    def __init__(
        self, photos: Array, slots: Array, labels: Array, *, batch: int, size: int, training: bool,
        augment: str = "none", sampling: str = "natural", seed: int = 0, resident: bool = False,
        replacement: BackgroundReplacement | None = None, mixing: Mixing | None = None, targets: Array | None = None,
        rank: int = 0, ranks: int = 1, part: int = 0,
    ) -> None:  # fmt: skip
        self.photos, self.slots, self.labels = photos, np.asarray(slots), np.asarray(labels, np.int32)
        if len(self.slots) and not 0 <= self.slots.min() <= self.slots.max() < len(photos):
            raise ValueError("a slot is outside the photos: parameters without a photo must be removed")
        self.batch, self.size, self.training = batch, size, training
        self.augment, self.sampling, self.seed, self.resident = augment, sampling, seed, resident
        self.replacement, self.mixing, self.targets = replacement, mixing, targets
        self.rank, self.ranks, self.part = rank, ranks, part or batch
        self.pages = MappedPages(photos)
        self.wait_seconds = 0.0
        """Seconds that the consumer has waited for batches."""

    @property
    def steps(self) -> int:
        count = len(self.slots)
        return max(count // self.batch, 1) if self.training else -(-count // self.batch)

    def order(self, epoch: int) -> Array:
        """The photos of an epoch, as indices into `slots`, int64 ``(N,)``."""
        if not self.training:
            return np.arange(len(self.slots))
        return epoch_order(self.labels, self.sampling, self.seed, epoch)

    def batches(self, epoch: int, first: int = 0) -> Generator[PhotoBatch, None, None]:
        """The batches of an epoch from index `first` on, equal to those of a full epoch; closing it ends its thread."""
        order = self.order(epoch)
        times = occurrences(order)
        together = max(1, DRAWN // self.batch)  # steps

        @lru_cache(1)
        def draw(number: int) -> Array:
            part = slice(number * together * self.batch, (number + 1) * together * self.batch)
            return self.draw(epoch, order[part], times[part])

        def gather_step(step: int) -> PhotoBatch:
            part = slice(step * self.batch, (step + 1) * self.batch)
            if self.training and self.ranks > 1:
                return self._gather_share(epoch, order[part], times[part])
            number, place = divmod(step, together)
            drawn = draw(number)[place * self.batch : (place + 1) * self.batch]
            return self.gather(epoch, order[part], times[part], drawn)

        steps = range(first, self.steps) if self.training else range(first + self.rank, self.steps, self.ranks)
        with closing(map_ahead(gather_step, steps, 1, AHEAD)) as ready:
            while True:
                begun = time.perf_counter()
                batch = next(ready, None)
                self.wait_seconds += time.perf_counter() - begun
                if batch is None:
                    return
                if self.resident:
                    self.pages.check()  # a CPU plan reads the photos in place
                yield batch

    def _gather_share(self, epoch: int, chosen: Array, times: Array) -> PhotoBatch:
        """This rank's share of a batch; if the batch has too few photos, one without a label."""
        parts = -(-self.batch // (self.ranks * self.part))
        first = self.rank * parts * self.part
        share = slice(first, first + parts * self.part) if first < len(chosen) else slice(1)
        rows, earlier = chosen[share], times[share]
        mine = self.gather(epoch, rows, earlier, self.draw(epoch, rows, earlier))
        if first >= len(chosen):
            mine = replace(mine, labels=np.array([-1], np.int32))
        return replace(mine, first=first, parts=parts, step_labels=self.labels[chosen])

    def draw(self, epoch: int, chosen: Array, times: Array) -> Array:
        """Augmentation parameters of the photos `chosen`; times: how often each occurred earlier in the epoch."""
        source = int(self.photos.shape[1])
        if not self.training:
            return identity_augmentation(len(chosen), source, self.size)
        augmentation = draw_augmentation(self.augment, self.seed, epoch, chosen, source, self.size, times)
        if self.replacement is not None:
            self.replacement.draw(augmentation, self.slots[chosen], (self.seed, epoch), chosen, times, self.size)
        return augmentation

    def gather(self, epoch: int, chosen: Array, times: Array, augmentation: Array) -> PhotoBatch:
        """One batch of the photos `chosen`, with their `augmentation`, in which mixed photos are entered."""
        slots, labels, targets = self.slots[chosen], self.labels[chosen], None
        if self.training and self.targets is not None:
            targets = self.targets[labels].astype(np.float32)
        if self.training and self.mixing is not None:
            which = slots if self.resident else np.arange(len(slots)) % self.mixing.part
            targets = self.mixing.draw(augmentation, which, labels, (self.seed, epoch), chosen, times,
                                       int(self.photos.shape[1]), self.size)  # fmt: skip
        if self.resident:
            return PhotoBatch(None, augmentation, labels, slots.astype(np.int32), targets)
        self.pages.check()
        photos = np.take(self.photos, slots, axis=0, mode="clip")
        self.pages.read(photos.nbytes)
        return PhotoBatch(photos, augmentation, labels, targets=targets)


def epoch_order(labels: Array, sampling: str, seed: int, epoch: int) -> Array:
    """Shuffled photo indices, int64 ``(N,)``; with sampling other than "natural", photos of rare classes repeat.

    Each class gets its quota of the N places and cycles through its photos, so that the counts of two photos of one
    class differ by at most 1.
    """
    count = len(labels)
    numbers = np.arange(count)
    keys = uniforms(2, numbers, np.zeros(count, np.int64), epoch, (seed, _ORDER))
    shuffled = np.argsort(keys[:, 0], kind="stable")
    power = SAMPLING[sampling]
    if power == 1.0:
        return shuffled
    chosen = np.empty(count, np.int64)
    at = 0
    counts, quotas = _quotas(labels, power)
    by_class = np.split(shuffled[np.argsort(labels[shuffled], kind="stable")], np.cumsum(counts)[:-1])
    for members, quota in zip(by_class, quotas, strict=True):
        chosen[at : at + quota] = np.resize(members, quota)
        at += quota
    return chosen[np.argsort(keys[:, 1], kind="stable")]


def occurrences(order: Array) -> Array:
    """How often each entry of `order` occurred before, int64."""
    by_photo = np.argsort(order, kind="stable")
    ordered = order[by_photo]
    times = np.empty(len(order), np.int64)
    times[by_photo] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return times


def _quotas(labels: Array, power: float) -> tuple[Array, Array]:
    """Numbers of photos and of places of each class present, places by the largest remainder method."""
    counts = np.unique(labels, return_counts=True)[1]
    share = counts.astype(np.float64) ** power
    exact = share / share.sum() * len(labels)
    quotas = np.floor(exact).astype(np.int64)
    left = len(labels) - int(quotas.sum())
    quotas[np.argsort(quotas - exact, kind="stable")[:left]] += 1
    return counts, quotas
