import numpy as np


def reference(values_ptr):
    return {"counts_ptr": np.bincount(values_ptr, minlength=16), "total_ptr": values_ptr.sum(keepdims=True)}
