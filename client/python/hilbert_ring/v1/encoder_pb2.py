"""The messages of proto/hilbert_ring/v1/encoder.proto, which documents the fields."""
from hilbert_ring._descriptors import names_of

globals().update(names_of("hilbert_ring/v1/encoder.proto"))
