"""Candidates that need compute capability 9.0 (TMA, `wgmma`). The engine works without this package."""
