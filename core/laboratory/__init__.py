"""The laboratory: networks and single kernels, timed and compared algorithm by algorithm."""
