"""What kernels are made of: fragments, tiles, lanes, rings, Hopper's products and copies."""
