"""Bottleneck analysis: what holds a kernel back, and which changes are worth making, with the numbers behind each."""
