"""The plan's convolutions on every GPU: whole, depthwise, and 1x1 within batch norms."""
