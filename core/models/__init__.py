"""Networks, each a file that reads like its paper's table, and their first weights."""

from core.models.architectures import MODELS, build
from core.models.init import initial_weights
from core.models.options import Options

__all__ = ["MODELS", "Options", "build", "initial_weights"]
