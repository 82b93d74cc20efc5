"""Patterns of a table of masks, without PyTorch."""
import numpy as np
import pytest

import hilbert_ring
from hilbert_ring._attention_mask import Seen, check_seen, seen_by

TRI = np.tri(4, dtype=bool)
LOW = np.finfo(np.float32).min


def keys(*rows):
    return np.array(rows, bool)


def added(sees, low=LOW, dtype="f4"):
    return np.where(sees, 0, low).astype(dtype)


LEFT, RIGHT, HOLE = keys([0, 0, 1, 1], [1, 1, 1, 1]), keys([1, 1, 0, 0], [1, 1, 1, 1]), keys([1, 0, 1, 1], [1, 1, 1, 1])


def causal(seen, blank=True):
    """Returns [batch, 1, 4, 4]. blank: rows of padding are empty."""
    mask = TRI & seen[:, None]
    return (mask & seen[:, :, None] if blank else mask)[:, None]


ANY = (2, 3, 4, 4)


@pytest.mark.parametrize("mask, shape, expected", [
    (np.ones((1, 1, 1, 4), bool), ANY, (False, keys([1] * 4, [1] * 4))),
    (np.zeros((2, 1, 4, 4), "f4"), ANY, (False, keys([1] * 4, [1] * 4))),
    (RIGHT[:, None, None], ANY, (False, RIGHT)),
    (added(LEFT[:, None, None]), ANY, (False, LEFT)),
    (added(HOLE[:, None, None], -np.inf), ANY, (False, HOLE)),
    (added(RIGHT[:, None, None], -65504, "f2"), ANY, (False, RIGHT)),
    (RIGHT[:, None, None], (2, 3, 1, 4), (False, RIGHT)),               # a query in a decoder
    (np.broadcast_to(RIGHT[:, None, None], (2, 1, 9, 4)), (2, 3, 9, 4), (False, RIGHT)),
    (TRI[None, None], ANY, (True, keys([1] * 4, [1] * 4))),
    (added(TRI[None, None]), (1, 3, 4, 4), (True, keys([1] * 4))),
    (TRI[None, None, 1:], (1, 3, 3, 4), (True, keys([1] * 4))),          # a cache holds a key
    (causal(LEFT), ANY, (True, LEFT)),
    (causal(HOLE), ANY, (True, HOLE)),
    (added(causal(LEFT)), ANY, (True, LEFT)),
    (causal(LEFT) | ~LEFT[:, None, :, None], ANY, (True, LEFT)),         # rows of padding full
    (causal(keys([1] * 4, [0] * 4)), ANY, (True, keys([1] * 4, [0] * 4))),  # a row without a query
])
def test_the_meaning_of_a_mask(mask, shape, expected):
    seen = seen_by(mask, shape)
    assert seen.causal is expected[0] and np.array_equal(seen.keys, expected[1])
    check_seen(seen, shape)


@pytest.mark.parametrize("mask, shape, what", [
    (np.tri(4, k=0, dtype=bool)[None, None] & ~np.tri(4, k=-2, dtype=bool), ANY, "neither causal nor padding"),
    (np.tri(4, k=1, dtype=bool)[None, None], ANY, "neither causal nor padding"),
    (TRI.T[None, None], ANY, "neither causal nor padding"),
    (np.kron(np.eye(2), np.ones((2, 2))).astype(bool)[None, None], ANY, "neither causal nor padding"),  # packed
    (np.stack([TRI, np.ones((4, 4), bool)])[:, None], ANY, "neither causal nor padding"),  # of one row each
    (np.tri(9, 4, dtype=bool)[None, None], (1, 3, 9, 4), "neither causal nor padding"),
    (causal(RIGHT, blank=False), ANY, "neither causal nor padding"),      # tokens that see and are not seen
    (causal(RIGHT), ANY, "neither causal nor padding"),
    (np.stack([TRI, TRI, np.ones((4, 4), bool)])[None], (1, 3, 4, 4), "between heads"),
    (np.full((1, 1, 4, 4), -1.0, "f4"), ANY, "adds numbers"),
    (np.where(TRI, 0.5, LOW).astype("f4")[None, None], ANY, "adds numbers"),
    (np.ones((1, 1, 4, 4), int), ANY, "must be bool or floating"),
    (np.ones((2, 4, 4), bool), ANY, "of a shape that expands"),
    (np.ones((2, 1, 4, 5), bool), ANY, "of a shape that expands"),
    (np.ones((2, 2, 4, 4), bool), ANY, "of a shape that expands"),
    (keys([0] * 4, [1] * 4)[:, None, None], ANY, "every key of row 0"),
])
def test_what_is_refused(mask, shape, what):
    with pytest.raises(hilbert_ring.InvalidArgumentError, match=what) as raised:
        check_seen(seen_by(mask, shape), shape)
    assert raised.value.field == "attention_mask"


@pytest.mark.parametrize("seen, shape, what", [
    (Seen(False, RIGHT), (2, 3, 4, 5), "must be of"), (Seen(False, RIGHT), (1, 3, 4, 4), "must be of"),
    (Seen(True, RIGHT), (2, 3, 5, 4), "5 queries"), (Seen(False, keys([0] * 4)), (1, 3, 1, 4), "every key of row 0")])
def test_what_is_not_of_the_attention(seen, shape, what):
    with pytest.raises(hilbert_ring.InvalidArgumentError, match=what):
        check_seen(seen, shape)
