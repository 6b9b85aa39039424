"""The place where a network learns: settings, live curves, kernels, confusion, runs."""
