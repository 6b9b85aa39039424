"""Steps that Hopper runs with kernels of its own: which (`*_steps`) and how (`*_launches`)."""
