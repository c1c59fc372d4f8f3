"""Tile sizes and work partitioning: op, dims, dtype and card → candidates, choice, partition, tuning plan."""
