"""The ladder: families of kernels, one technique a rung, with what each rung has to show."""
