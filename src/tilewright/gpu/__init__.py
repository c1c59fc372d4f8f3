"""The GPU: what is there, an executor on it, and a stopwatch. CUDA is imported only when one of these is asked for."""
