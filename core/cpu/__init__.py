"""Fast CPU kernels in Numba, and the plan that executes them image by image."""
