"""Runs a service and a job from an installed wheel with programs alone."""
import numpy as np

import hilbert_ring

program = hilbert_ring.local_service.find_program("hilbert-ring-coordinator")
assert program.parent.parent.name == "hilbert_ring", program
folder = program.parent.parent
assert "Apache License" in (folder / "LICENSE").read_text()
texts = {path.name for path in (folder / "bin" / "licenses").glob("*.txt")}
assert {"libgloo-dev.txt", "common-Apache-2.0.txt"} <= texts, texts
assert any(name.startswith("libgrpc++1") for name in texts), texts
with hilbert_ring.local(workers=2) as client:
    values = np.ones((4096, 2, 16), np.float32)
    result = client.attend(values, values, values, segments=[512, 4096], mixing="lse")
    assert np.allclose(result.out, 1) and len(client.status().workers) == 2
print(f"{result.report.tokens} tokens by {result.report.workers[0].kernel}")
