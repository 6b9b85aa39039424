"""The window's fixtures."""

from tests.helpers.window import answers, home, language, nothing_left, offscreen, opened, program, settings, start  # noqa: F401 (fixtures)
