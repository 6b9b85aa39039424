"""Fixtures of the window and of the command lines."""

from tests.helpers.commands import cache, photos, trained  # noqa: F401 (fixtures)
from tests.helpers.window import answers, home, language, nothing_left, offscreen, opened, program, start  # noqa: F401 (fixtures)
