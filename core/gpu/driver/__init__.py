"""What talks to the driver of a GPU: the device, its memory, tensor maps, launches of teaching kernels."""
