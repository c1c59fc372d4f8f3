"""Kernels in forms that the analysis does not read, brought into forms that it does, one small pass at a time."""
