"""What both halves of the benchmark of a billion tokens compute: the pattern, and rows of it in float64."""
import numpy as np

SEGMENTS, DILATIONS = (2048, 4096, 8192), (1, 2, 4)
HEADS, DIM = 3, 8
WINDOW = SEGMENTS[-1]  # a token sees none beyond its window of so many


def deviation(row, window, at):
    """The largest of a row's elements from those in float64, by the definition: each head has one branch.

    Args:
        row: [heads, dim], of the token that is `at` in the window.
        window: q, k and v of all of the token's window that there is, each [rows, heads, dim].
    """
    right = np.zeros((HEADS, DIM))
    for head, (segment, dilation) in enumerate(zip(SEGMENTS, DILATIONS)):
        first = at // segment * segment
        offset = head % dilation
        if (at - first - offset) % dilation:
            continue  # the branch does not select it
        q = window[0][at, head].astype("f8")
        k, v = (tensor[first:first + segment, head].astype("f8")[offset::dilation] for tensor in window[1:])
        scores = k @ q / np.sqrt(DIM)
        weights = np.exp(scores - scores.max())
        right[head] = weights @ v / weights.sum()
    return float(np.abs(row - right / len(SEGMENTS)).max())
