"""PTX on the CPU, over NumPy: an executor with hazards and counters. Imported late: it needs NumPy."""
