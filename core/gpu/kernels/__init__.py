"""CUDA kernels: the ladder, to be read, what the plan runs, and the parts that both are made of."""
