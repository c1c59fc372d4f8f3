"""Warp-level matrix instructions over many warps at once: layouts, decoding and arithmetic. Pure functions."""
