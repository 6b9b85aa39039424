"""Networks to and from ONNX files. Channels first outside, channels last inside; the border is here."""

from core.onnx.metadata import Imported
from core.onnx.quantisation import Quantised
from core.onnx.quantised_writer import write_quantised_onnx
from core.onnx.reader import read_onnx
from core.onnx.writer import write_onnx

__all__ = ["Imported", "Quantised", "read_onnx", "write_onnx", "write_quantised_onnx"]
