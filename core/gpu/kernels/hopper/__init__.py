"""The plan's convolutions by `wgmma`, on Hopper alone."""
