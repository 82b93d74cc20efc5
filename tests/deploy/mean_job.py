"""A job with a known result: if all scores are equal, an output is the mean of V over its segment.

    write_inputs(folder)
    run(["hilbert-ring", "attend", *arguments(folder)])
    why_wrong(folder / "out.npy")   # "": the result is right
"""
import numpy

TOKENS, HEADS, DIM, SEGMENT = 4096, 4, 64, 1024
TOLERANCE = 2e-5  # rounding of float32 sums, relative to the segment's length, V's largest value


def write_inputs(folder, tokens=TOKENS, segment=SEGMENT):
    values = numpy.broadcast_to((numpy.arange(tokens) % segment)[:, None, None],
                                (tokens, HEADS, DIM)).astype("f4")
    for name, tensor in (("q", numpy.zeros_like(values)), ("k", numpy.ones_like(values)),
                         ("v", values)):
        numpy.save(folder / f"{name}.npy", tensor)


def arguments(folder, out=None, segment=SEGMENT):
    """Returns arguments of `hilbert-ring attend`. folder: as the program sees it."""
    return [f"--segments={segment}", "--dilations=1",
            *(f"--{name}={folder}/{name}.npy" for name in "qkv"), f"--out={out or folder}/out.npy"]


def why_wrong(path, tokens=TOKENS, segment=SEGMENT):
    if not path.exists():
        return "there is no output"
    out = numpy.load(path)
    if out.shape != (tokens, HEADS, DIM):
        return f"the output is {out.shape}"
    off = abs(out - (segment - 1) / 2).max()
    return "" if off <= TOLERANCE * segment else f"the output is off by {off}"  # also for NaN
