"""The messages of proto/hilbert_ring/v1/many.proto, which says what each field means."""
from hilbert_ring._descriptors import names_of

globals().update(names_of("hilbert_ring/v1/many.proto"))
