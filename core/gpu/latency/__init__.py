"""Optional candidates for predictions of up to four images, where latency decides, not bandwidth or arithmetic.

Such layers are so small that a block waits for one load after another. These kernels have all loads of a block
in flight at once, split the depth of a sum between warps (sliced-K), and fuse neighbouring steps into one launch. They
load their filters before the previous kernel has ended (programmatic dependent launch, PDL). Without this folder the
engine uses its general kernels.
"""
