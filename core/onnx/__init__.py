"""Reading and writing ONNX files."""
