"""Pictures of jobs as SVG: `hilbert-ring draw`."""
