"""Networks to and from ONNX files. Files are channels first, the engine is channels last."""

from core.onnx.metadata import Imported
from core.onnx.quantisation import Quantised
from core.onnx.reader import read_onnx
from core.onnx.writer import write_onnx, write_quantised_onnx

__all__ = ["Imported", "Quantised", "read_onnx", "write_onnx", "write_quantised_onnx"]
