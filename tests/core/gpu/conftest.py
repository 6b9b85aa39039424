"""Closes the plans of tests."""

import sys

import pytest


@pytest.fixture(autouse=True)
def closed_plans(monkeypatch):
    """Plans that a test leaves on the GPU, or on a pretended one, are closed after it, also where it fails."""
    yield
    device = sys.modules.get("core.gpu.driver.device")
    for plan in [*device._registered] if device else ():
        plan.close()
