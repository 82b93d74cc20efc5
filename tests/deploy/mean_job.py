"""A job whose result is known: where all scores are equal, an output is the mean of V over its segment.

    write_inputs(folder)
    run(["hilbert-ring", "attend", *arguments(folder)])
    why_wrong(folder / "out.npy")   # empty where it is right
"""
import numpy

TOKENS, HEADS, DIM, SEGMENT = 4096, 4, 64, 1024
# Of the segment's length, to which V counts: the rounding of sums in float32.
TOLERANCE = 2e-5


def write_inputs(folder, tokens=TOKENS, segment=SEGMENT):
    values = numpy.broadcast_to((numpy.arange(tokens) % segment)[:, None, None],
                                (tokens, HEADS, DIM)).astype("f4")
    for name, tensor in (("q", numpy.zeros_like(values)), ("k", numpy.ones_like(values)),
                         ("v", values)):
        numpy.save(folder / f"{name}.npy", tensor)


def arguments(folder, out=None, segment=SEGMENT):
    """Of `hilbert-ring attend`, with the folder as the program sees it."""
    return [f"--segments={segment}", "--dilations=1",
            *(f"--{name}={folder}/{name}.npy" for name in "qkv"), f"--out={out or folder}/out.npy"]


def why_wrong(path, tokens=TOKENS, segment=SEGMENT):
    if not path.exists():
        return "there is no output"
    out = numpy.load(path)
    if out.shape != (tokens, HEADS, DIM):
        return f"the output is {out.shape}"
    off = abs(out - (segment - 1) / 2).max()
    return "" if off <= TOLERANCE * segment else f"the output is off by {off}"  # NaN is off
