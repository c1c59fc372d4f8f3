"""What the families compute, in float64 with NumPy: one module a family, called with the arguments by name."""
