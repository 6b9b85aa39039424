"""The window's fixtures."""

from tests.helpers.window import answers, home, language, nothing_left, offscreen, program, start  # noqa: F401 (fixtures)
