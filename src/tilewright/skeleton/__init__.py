"""Kernel skeletons: parameters in, source text and sidecar out. Pure; ``texts`` holds what is filled in."""
