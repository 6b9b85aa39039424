"""The page where a network is trained: settings, live curves, kernels, confusion, runs."""
