"""Benchmarks of a service: `hilbert-ring bench`."""
