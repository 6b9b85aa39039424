"""Fast CPU kernels in Numba and the plan that walks them photo by photo."""
