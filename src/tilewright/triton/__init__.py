"""Triton kernels: a Python file → PTX and a cubin, without a GPU, without torch."""
