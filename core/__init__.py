"""LeafClinic's engine: data, networks, kernels and training, without any window."""

__version__ = "0.1.0"
