"""Hazard checks: races, missing waits, uninitialised and stray accesses, driven through plain calls."""
