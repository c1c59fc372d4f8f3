"""How fast is it? Baseline and variants interleaved in one run; only what has passed verification is timed."""
