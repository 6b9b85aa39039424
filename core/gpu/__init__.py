"""The GPU: a plan that captures a step as one CUDA graph, a table of all kernels, and the floors under both."""
