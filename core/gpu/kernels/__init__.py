"""Parts that the kernels of several families share."""
