"""Is a variant right? Bit for bit against its baseline, and the baseline against a reference in float64."""
