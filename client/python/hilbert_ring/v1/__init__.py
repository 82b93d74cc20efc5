"""The service's messages, package hilbert_ring.v1 of the proto."""
