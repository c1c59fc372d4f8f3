"""Tilewright: software pipelining for tiled CUDA kernels, decided, rewritten, verified, timed and proven in SASS."""

__version__ = "0.1.0"
