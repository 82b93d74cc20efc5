"""Pictures of jobs as SVG: `python3 -m hilbert_ring draw`."""
