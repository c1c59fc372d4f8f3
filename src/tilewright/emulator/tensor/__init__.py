"""Addresses of the asynchronous copies and of the matrix descriptors of sm_90: pure functions, no state."""
