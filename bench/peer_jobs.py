"""The jobs that bench/peers.py measures."""
from dataclasses import dataclass


@dataclass
class Job:
    name: str
    tokens: int
    segments: tuple = ()  # empty: one segment, dense
    dilations: tuple = (1,)
    mixing: str = "head_groups"
    causal: bool = False
    dtype: str = "float32"
    heads: int = 8
    dim: int = 64

    def __post_init__(self):
        self.segments = self.segments or (self.tokens,)

    @property
    def scale_out(self):
        """Returns the factor of averaging over head groups."""
        return 1 / len(self.segments) if self.mixing == "head_groups" else 1.0

    def spec(self):
        return {"tokens": self.tokens, "heads": self.heads, "head_dim": self.dim, "dtype": self.dtype,
                "segments": list(self.segments), "dilations": list(self.dilations),
                "mixing": self.mixing, "causal": self.causal}

    def units(self):
        """Returns (heads, segment, dilation, offset) of each unit by branch, like tests/golden/attention_oracle.py."""
        branches = list(zip(self.segments, self.dilations))
        if self.mixing == "lse":
            result = []
            for w, r in branches:
                share = -(-self.heads // r)
                result.append([(slice(o * share, min((o + 1) * share, self.heads)), w, r, o)
                               for o in range(r) if o * share < self.heads])
            return result
        count = len(branches)
        sizes = [self.heads // count + (i < self.heads % count) for i in range(count)]
        ends = [sum(sizes[:i + 1]) for i in range(count)]
        return [[(slice(ends[i] - sizes[i], ends[i]), w, r, i % r)]
                for i, (w, r) in enumerate(branches)]

    def flops(self):
        """Returns the flop of the unmasked scores."""
        scores = 0
        for heads, w, r, _ in (unit for branch in self.units() for unit in branch):
            rows = w // r
            pairs = rows * (rows + 1) // 2 if self.causal else rows * rows
            scores += (heads.stop - heads.start) * (self.tokens // w) * pairs
        return 4 * self.dim * scores


LONG = 32768
JOBS = [
    Job("dense", 8192),
    Job("causal", 8192, causal=True),
    Job("dense-bfloat16", 8192, dtype="bfloat16"),
    Job("causal-bfloat16", 8192, causal=True, dtype="bfloat16"),
    Job("segment-2048", LONG, (2048,)),
    Job("segment-4096-dilation-2", LONG, (4096,), (2,)),
    Job("segment-8192-dilation-4", LONG, (8192,), (4,)),
    Job("published", LONG, (2048, 4096, 8192), (1, 2, 4)),
    Job("published-bfloat16", LONG, (2048, 4096, 8192), (1, 2, 4), dtype="bfloat16"),
    Job("published-lse", LONG, (2048, 4096, 8192), (1, 2, 4), "lse"),
]
