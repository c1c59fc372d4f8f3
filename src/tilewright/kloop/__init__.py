"""A kernel that was read becomes a TiledKernel (K-loop, phases, tiles, copies), each fact proven, or a Refusal."""
