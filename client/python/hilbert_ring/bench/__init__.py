"""Benchmarks of a service: `python3 -m hilbert_ring bench`."""
