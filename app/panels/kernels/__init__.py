"""The page where kernels are verified, timed and read."""
