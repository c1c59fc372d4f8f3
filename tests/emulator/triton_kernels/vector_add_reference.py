import numpy as np


def reference(x_ptr, y_ptr):
    return {"out_ptr": x_ptr.astype(np.float64) + y_ptr}
