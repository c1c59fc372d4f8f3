"""How a kernel is launched: the sidecar, the inputs made from it, and the protocol of whatever runs it.

Importing this package is cheap; NumPy is loaded only when arrays are made.
"""
