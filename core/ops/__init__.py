"""Operations: shape rule, cost and NumPy reference of each, one file per op."""
