"""Rows of the table of kernels: the fast plan's, each step by itself, and the vendor's."""
