"""The laboratory: networks and single kernels run rung by rung, timed and compared."""
