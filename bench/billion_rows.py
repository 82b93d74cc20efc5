"""The pattern of the benchmark of a billion tokens, and rows of it in float64."""
import numpy as np

SEGMENTS, DILATIONS = (2048, 4096, 8192), (1, 2, 4)
HEADS, DIM = 3, 8
WINDOW = SEGMENTS[-1]  # a token sees only its window of this many tokens


def deviation(row, window, at):
    """Returns the largest deviation of a row's elements from the definition in float64.

    Each head has one branch.

    Args:
        row: [heads, dim], of the token at index `at` of the window.
        window: q, k and v of all existing tokens of the window, each [rows, heads, dim].
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
