"""A driver without a GPU, and plans that are closed after each test."""

import sys

import pytest

from tests.helpers.pretended_gpu import pretend


@pytest.fixture(autouse=True)
def closed_plans(monkeypatch):
    """Plans that a test leaves on the GPU, or on a pretended one, are closed after it, also where it fails."""
    yield
    device = sys.modules.get("core.gpu.driver.device")
    for plan in [*device._registered] if device else ():
        plan.close()


@pytest.fixture
def driver(monkeypatch):
    """A pretended driver of 8 GiB in place of CUDA's."""
    return pretend(monkeypatch)
