"""Fixtures of programs."""

from tests.helpers.commands import cache  # noqa: F401 (fixture)
