"""The matrix product, from naive to the tensor cores: no op of a network, but the core of convolutions."""
