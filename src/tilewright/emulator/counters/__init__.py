"""Counters: sectors, bank conflicts, instruction mix, bytes and FLOPs of a launch."""
