"""Fixtures of runs by the command line."""

from tests.helpers.commands import cache, photos  # noqa: F401 (fixtures)
