"""Photos and backgrounds that stay on the device."""

from __future__ import annotations

from core.gpu.control import BACKGROUNDS, Settings
from core.gpu.driver.memory import Block
from core.ops.contract import Array
from core.ops.photo import Backgrounds


class KeptPhotos:
    """Photos that batches name by index, and backgrounds for augmentation; several plans may read them."""

    def __init__(self) -> None:
        self.photos: Array | None = None
        self.backgrounds: Backgrounds | None = None
        self._blocks: dict[str, tuple[Block, Array]] = {}
        """What is on the device, by its field of `Settings`."""

    def keep(self, photos: Array | None) -> None:
        """Replace the photos; None frees them."""
        self.photos = None
        self._put("source", photos)
        self.photos = photos

    def keep_backgrounds(self, backgrounds: Backgrounds) -> None:
        self.backgrounds = backgrounds
        for name, array in zip(BACKGROUNDS, (backgrounds.masks, backgrounds.images), strict=True):
            self._put(name, array)

    def write_to(self, settings: Settings) -> None:
        """Set addresses and sizes of what is on the device."""
        for name, (block, array) in self._blocks.items():
            setattr(settings, name, (block.address, *array.shape[1:3]))

    def free(self) -> None:
        """Free everything on the device; the arrays on the host stay, for a plan that is restored."""
        for name in list(self._blocks):
            self._put(name, None)

    def _put(self, name: str, array: Array | None) -> None:
        if name in self._blocks:
            self._blocks.pop(name)[0].close()
        if array is not None:
            self._blocks[name] = Block(array.nbytes), array
            self._blocks[name][0].put(array)
