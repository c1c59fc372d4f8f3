"""A sidecar drafted where none is beside the kernel: from the launch, the signature, and one run in the emulator."""
