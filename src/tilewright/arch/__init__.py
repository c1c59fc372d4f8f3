"""The architecture room: limits and rates of each GPU generation from TOML; occupancy and roofline, pure functions."""
