"""Device functions shared by the fast kernels: vectors, tiles, epilogues."""
