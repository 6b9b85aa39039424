"""The CUDA device, its kernels and the plan that captures a step as one CUDA graph."""
