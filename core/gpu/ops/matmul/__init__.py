"""The matrix product, from naive to tensor cores: not an op of a network, but the core of convolutions."""
