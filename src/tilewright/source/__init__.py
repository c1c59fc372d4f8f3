"""Reading CUDA C++: a ``.cu`` file becomes kernels of a small tree, each name and constant of them resolved."""
