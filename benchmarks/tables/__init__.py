"""Tables of measured figures, generated from `benchmarks/results/` into README and docs."""
