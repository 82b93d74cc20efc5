"""How far a job's output is off, by a sample recomputed in float64.

The definition is tests/golden/attention_oracle.py, token order included: nothing here asks the
service. For one branch of dilation 1 a row sees the rows of its own segment, so whole segments are
recomputed.
"""
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "golden"))
import attention_oracle  # noqa: E402


@dataclass
class Deviation:
    rows: int              # recomputed
    out: float             # largest |difference| of out
    lse: float             # largest |difference| of lse
    out_of_allowed: float  # largest |difference| of out, as a part of what is allowed there
    lse_of_allowed: float

    def exact(self):
        return self.out_of_allowed <= 1 and self.lse_of_allowed <= 1


def deviation(spec, q, k, v, out, lse, segments, seed):
    """Recomputes that many segments of the job, drawn at random.

    Allowed are 1e-5 |out| + max(2e-6, 2^-22 max|score| max|v|), and 1e-5 (1 + |lse|), float32.
    """
    assert len(spec["segments"]) == 1 and spec["dilations"] == [1] and spec["heads"] == 1
    length = spec["segments"][0]
    order = attention_oracle.token_order(spec["tokens"], spec["ordering"])
    count = -(-spec["tokens"] // length)
    drawn = np.random.default_rng(seed).choice(count, size=min(segments, count), replace=False)
    result = Deviation(0, 0.0, 0.0, 0.0, 0.0)
    for segment in drawn:
        tokens = order[segment * length:(segment + 1) * length]
        rows_q, rows_k, rows_v = (np.asarray(x[tokens, 0], np.float64) for x in (q, k, v))
        want, want_lse = attention_oracle.attend_branch(
            rows_q, rows_k, rows_v, tokens, tokens, segment=length, dilation=1, offset=0,
            scale=spec["scale"], causal=spec["causal"], tail=spec["tail"])
        top_score = np.abs(rows_q @ rows_k.T).max() * spec["scale"]
        floor = max(2e-6, 2.0**-22 * top_score * np.abs(rows_v).max())
        off = np.abs(out[tokens, 0] - want)
        off_lse = np.abs(lse[tokens, 0] - want_lse)
        # np.max, not max(): a NaN must not vanish.
        result = Deviation(
            rows=result.rows + len(tokens),
            out=float(np.max([result.out, off.max()])),
            lse=float(np.max([result.lse, off_lse.max()])),
            out_of_allowed=float(np.max(
                [result.out_of_allowed, (off / (1e-5 * np.abs(want) + floor)).max()])),
            lse_of_allowed=float(np.max(
                [result.lse_of_allowed, (off_lse / (1e-5 * (1 + np.abs(want_lse)))).max()])))
    return result
