"""PTX blocks to Python functions over NumPy. One module per family of opcodes."""
