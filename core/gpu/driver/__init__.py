"""Access to the GPU's driver: device, memory, tensor maps, cuBLAS."""
