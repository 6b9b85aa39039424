"""The window. Only this package uses Qt; `core` holds the data and the work."""

import core  # noqa: F401 - Ctrl-C ends the program without a traceback from here on
