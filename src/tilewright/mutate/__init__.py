"""Broken twins of kernels: what the checks have to find."""
