"""Memory-bound kernels that no family has taken over yet."""
