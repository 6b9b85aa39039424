"""Networks to and from ONNX files. Channels first outside, channels last inside; the border is here."""

from core.onnx.metadata import Imported
from core.onnx.reader import read_onnx
from core.onnx.writer import write_onnx

__all__ = ["Imported", "read_onnx", "write_onnx"]
