"""Reading CUDA C++: a ``.cu`` file becomes a TiledKernel (K-loop, phases, tiles, copies) or a Refusal."""
