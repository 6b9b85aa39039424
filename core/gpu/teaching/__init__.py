"""What teaching kernels stand on: launches noted in a plan, arrays as they read them, and sums in a fixed order."""
