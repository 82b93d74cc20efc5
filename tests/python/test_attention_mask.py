"""Patterns of masks: of tables, and of transformers' functions. Without PyTorch numpy_torch stands in."""
import contextlib
from importlib.util import find_spec

import numpy as np
import pytest

import hilbert_ring
import numpy_torch
from hilbert_ring._attention_mask import banded, every_query, seen_by
from hilbert_ring._mask_function import read

TRI = np.tri(4, dtype=bool)
LOW = np.finfo(np.float32).min


@pytest.fixture(scope="module", autouse=True)
def masking():
    """Yields transformers.masking_utils and torch, or their stand-ins."""
    absent = find_spec("torch") is None or find_spec("transformers") is None
    with numpy_torch.installed() if absent else contextlib.nullcontext():
        import torch
        from transformers import masking_utils
        yield masking_utils, torch


def keys(*rows):
    return np.array(rows, bool)


def added(sees, low=LOW, dtype="f4"):
    return np.where(sees, 0, low).astype(dtype)


def table(parts, shape):
    """Returns [batch, queries, keys]: what the packed sequences let the queries see."""
    batch, _, queries, tokens = shape
    sees = np.zeros((batch, queries, tokens), bool)
    for part in parts:
        left, right = part.window
        at_q, at_k = np.argwhere(part.queries), np.argwhere(part.keys)
        assert part.lengths_q.sum() == len(at_q) and part.lengths_k.sum() == len(at_k)
        for own, theirs in zip(np.split(at_q, part.lengths_q.cumsum()[:-1]), np.split(at_k, part.lengths_k.cumsum()[:-1])):
            for number, (row, query) in enumerate(own):
                assert not sees[row, query].any()  # a query is of one part
                ahead = np.arange(len(theirs)) - (number + (len(theirs) - len(own) if part.align == "end" else 0))
                seen = (ahead <= (0 if part.causal else 99 if right is None else right)) & (
                    ahead >= (-99 if left is None else -left))
                assert (theirs[:, 0] == row).all()
                sees[row, query, theirs[seen, 1]] = True
    return sees


LEFT, RIGHT, HOLE = keys([0, 0, 1, 1], [1, 1, 1, 1]), keys([1, 1, 0, 0], [1, 1, 1, 1]), keys([1, 0, 1, 1], [1, 1, 1, 1])
BLOCKS = np.kron(np.eye(2), np.ones((2, 2))).astype(bool)
BAND = np.tri(6, k=1, dtype=bool) & ~np.tri(6, k=-3, dtype=bool)
FAR = np.tri(8, dtype=bool) & ~np.tri(8, k=-3, dtype=bool)
ANY = (2, 3, 4, 4)


def causal(seen, blank=True):
    """Returns [batch, 1, 4, 4]. blank: rows of padding are empty."""
    mask = TRI & seen[:, None]
    return (mask & seen[:, :, None] if blank else mask)[:, None]


@pytest.mark.parametrize("mask, shape, kind", [
    (np.ones((1, 1, 1, 4), bool), ANY, (False, None, None)),
    (np.zeros((2, 1, 4, 4), "f4"), ANY, (False, None, None)),
    (RIGHT[:, None, None], ANY, (False, None, None)),
    (added(LEFT[:, None, None]), ANY, (False, None, None)),
    (added(HOLE[:, None, None], -np.inf), ANY, (False, None, None)),
    (added(RIGHT[:, None, None], -65504, "f2"), ANY, (False, None, None)),
    (RIGHT[:, None, None], (2, 3, 1, 4), (False, None, None)),                    # a query in a decoder
    (np.broadcast_to(RIGHT[:, None, None], (2, 1, 9, 4)), (2, 3, 9, 4), (False, None, None)),
    (TRI[None, None], ANY, (True, None, None)),
    (added(TRI[None, None]), (1, 3, 4, 4), (True, None, None)),
    (TRI[None, None, 1:], (1, 3, 3, 4), (True, None, None)),                      # a cache holds a key
    (np.pad(TRI, ((0, 0), (0, 3)))[None, None], (1, 3, 4, 7), (True, None, None)),  # a static cache
    (np.pad(TRI[2:], ((0, 0), (0, 3)))[None, None], (1, 3, 2, 7), (True, None, None)),
    (causal(LEFT), ANY, (True, None, None)),
    (causal(HOLE), ANY, (True, None, None)),
    (added(causal(LEFT)), ANY, (True, None, None)),
    (causal(RIGHT), ANY, (True, None, None)),
    (causal(RIGHT, blank=False), ANY, (True, None, None)),                        # padding sees the text
    (causal(keys([1] * 4, [0] * 4)), ANY, (True, None, None)),                    # a row without a query
    ((TRI & ~np.tri(4, k=-2, dtype=bool))[None, None], ANY, (True, 1, None)),
    (causal(LEFT) | ~LEFT[:, None, :, None], ANY, (True, None, None)),            # padding sees everything
    (np.eye(4, dtype=bool)[None, None], ANY, (False, None, None)),                # sequences of one token
    (TRI.T[None, None], ANY, (False, 0, None)),
    (BAND[None, None], (2, 3, 6, 6), (False, 2, 1)),
    (BAND[None, None, 4:], (2, 3, 2, 6), (False, 2, None)),
    (BLOCKS[None, None], ANY, (False, None, None)),                               # packed sequences
    ((BLOCKS & TRI)[None, None], ANY, (True, None, None)),
    ((BLOCKS & TRI)[None, None, 1:], (1, 3, 3, 4), (True, None, None)),
    (np.tri(9, 4, dtype=bool)[None, None], (1, 3, 9, 4), (True, None, None)),     # aligned to the top left
    (np.tri(4, 9, k=2, dtype=bool)[None, None], (1, 3, 4, 9), (True, None, None)),
    ((TRI | (np.arange(4) < 2))[None, None], ANY, (True, None, None)),            # a prefix that sees itself
    (np.stack([TRI, np.ones((4, 4), bool)])[:, None], ANY, (True, None, None)),
    (np.tri(4, k=-1, dtype=bool)[None, None], ANY, (True, None, None)),           # without the query's own key
    (np.stack([np.tri(3, 6, k=1), np.tri(3, 6, k=3)])[:, None] > 0, (2, 3, 3, 6), (True, None, None)),  # rows of a cache
])
def test_the_meaning_of_a_table(mask, shape, kind):
    parts = seen_by(mask, shape)
    assert (parts[0].causal, *parts[0].window) == kind
    given = mask if mask.dtype == bool else mask == 0
    assert (table(parts, shape) == np.broadcast_to(given[:, 0], (shape[0], *shape[2:]))).all()


@pytest.mark.parametrize("mask, shape, what", [
    (np.stack([BAND, np.tri(6, dtype=bool)])[:, None], (2, 3, 6, 6), "neither causal nor"),
    ((np.add.outer(np.arange(6), np.arange(6)) % 2 == 0)[None, None], (1, 3, 6, 6), "neither causal nor"),  # strided
    ((FAR | (np.arange(8) < 1))[None, None], (1, 3, 8, 8), "neither causal nor"),  # a window and the first key
    ((FAR & (np.arange(8) != 3))[None, None], (1, 3, 8, 8), "neither causal nor"),  # padding within a text
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
        seen_by(mask, shape)
    assert raised.value.field == "attention_mask"


PADS = {"left": [(0, 0), (4, 0), (9, 0)], "right": [(0, 0), (0, 4), (0, 9)], "mixed": [(0, 3), (5, 0), (0, 0)]}
SIDES = {"causal": (99, 0), "full": (99, 99), "causal window": (2, 0), "window": (2, 3), "long window": (9, 0)}
SHOWN = {  # what a query of padding sees
    "nothing": lambda sees, own: sees & own, "by position": lambda sees, own: sees,
    "no empty row": lambda sees, own: sees | ~sees.any(2, keepdims=True), "everything": lambda sees, own: sees | ~own}


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("pad", PADS)
@pytest.mark.parametrize("sides", SIDES)
def test_padding_beside_any_window(sides, pad, shown):
    (left, right), place = SIDES[sides], np.arange(12)
    real = np.array([(place >= before) & (place < 12 - after) for before, after in PADS[pad]])
    ahead = place - place[:, None]
    sees = SHOWN[shown](((ahead >= -left) & (ahead <= right)) & real[:, None], real[:, :, None])
    parts = seen_by(sees[:, None], (3, 1, 12, 12))
    assert (table(parts, sees[:, None].shape) == sees).all()
    assert len(parts) <= 1 + (pad == "mixed") + (shown in ("no empty row", "everything"))


def test_random_tables():
    """A mask of any kind is read as what it is. Random changes of it are refused, or read as what they are."""
    random = np.random.default_rng(7)
    read_again = 0
    for _ in range(400):
        batch, tokens = random.integers(1, 4), random.integers(1, 12)
        queries = random.integers(1, tokens + 1)
        ids = np.sort(random.integers(0, random.integers(1, 4), (batch, tokens)))
        ahead = np.arange(tokens) - np.arange(tokens - queries, tokens)[:, None]
        left, right = random.integers(0, 12), random.choice([0, 0, 2, 12])
        padding = np.arange(tokens) >= random.integers(0, 3, batch)[:, None]
        padding &= np.arange(tokens) < tokens - random.integers(0, 3, batch)[:, None]
        own = slice(tokens - queries, None)
        sees = (ahead >= -left) & (ahead <= right) & (ids[:, own, None] == ids[:, None]) & padding[:, None]
        if random.integers(2):
            sees &= padding[:, own, None]
        if random.integers(2):
            sees[tuple(random.integers(0, size) for size in sees.shape)] ^= True
        shape = (int(batch), 2, int(queries), int(tokens))
        try:
            parts = seen_by(sees[:, None], shape)
        except hilbert_ring.InvalidArgumentError:
            continue
        read_again += 1
        assert (table(parts, shape) == sees).all()
    assert read_again > 200


@pytest.mark.parametrize("make, causal, window", [
    (lambda masks: masks.causal_mask_function, True, (None, None)),
    (lambda masks: masks.bidirectional_mask_function, False, (None, None)),
    (lambda masks: masks.sliding_window_causal_mask_function(5), True, (4, None)),
    (lambda masks: masks.sliding_window_causal_mask_function(1), True, (0, None)),
    (lambda masks: masks.sliding_window_bidirectional_mask_function(3), False, (3, 3)),
    (lambda masks: masks.and_masks(masks.sliding_window_causal_mask_function(5), masks.sliding_window_overlay(3)), True,
     (2, None)),
    (lambda masks: masks.sliding_window_causal_mask_function(10**12), True, (None, None)),
])
def test_the_meaning_of_a_function(masking, make, causal, window):
    found = read(make(masking[0]), np.arange(12)[None])
    assert (found.causal, found.window, found.ids) == (causal, window, None)


def by_function(masking, function, padding, queries, offset=0):
    """Returns [batch, queries, keys]: transformers' own table, without the rows of padding."""
    torch = masking[1]
    batch, tokens = padding.shape
    places = [torch.arange(size) for size in (batch, 1, queries, tokens)]
    places[2] = places[2] + offset
    sees = np.asarray(function(*(place.reshape([-1 if axis == number else 1 for axis in range(4)])
                               for number, place in enumerate(places))))
    sees = np.broadcast_to(sees, (batch, 1, queries, tokens))[:, 0] & padding[:, None]
    return sees & padding[:, offset:offset + queries, None]


@pytest.mark.parametrize("queries, offset", [(12, 0), (5, 7), (1, 11), (3, 4)])
@pytest.mark.parametrize("kind", ["causal", "window", "chunks", "both"])
def test_a_function_is_the_table_that_it_makes(masking, kind, queries, offset):
    masks, torch = masking
    padding = np.array([[0] * 3 + [1] * 9, [1] * 12, [1] * 9 + [0] * 3], bool)
    left = torch.from_numpy(np.array([3, 0, 0]))
    function = {"causal": masks.causal_mask_function, "window": masks.sliding_window_causal_mask_function(4),
                "chunks": masks.chunked_causal_mask_function(4, left),
                "both": masks.and_masks(masks.chunked_causal_mask_function(5, left), masks.sliding_window_overlay(3))}[kind]
    found = read(function, np.broadcast_to(np.arange(12), (3, 12)))
    seen = banded(padding, queries, offset, found.causal, found.window, found.ids)
    assert (table([seen], (3, 1, queries, 12)) == by_function(masking, function, padding, queries, offset)).all()


def test_packed_positions(masking):
    masks, torch = masking
    positions = np.array([[0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 0, 1], np.arange(12)])
    packed = (np.diff(positions, prepend=positions[:, :1] - 1) != 1).cumsum(1)
    for inner in (masks.causal_mask_function, masks.sliding_window_causal_mask_function(3)):
        function = masks.packed_sequence_compatibility_function(inner, torch.from_numpy(positions),
                                                                torch.from_numpy(packed))
        found = read(function, np.broadcast_to(np.arange(12), (2, 12)))
        whole = np.ones((2, 12), bool)
        seen = banded(whole, 12, 0, found.causal, found.window, found.ids)
        assert seen.lengths_k.tolist() == [4, 5, 1, 2, 12]
        assert (table([seen], (2, 1, 12, 12)) == by_function(masking, function, whole, 12)).all()
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="do not rise by 1"):
        read(masks.remap_positions_for_packed_sequence(masks.causal_mask_function, torch.from_numpy(positions)), positions)


def test_other_functions_are_refused(masking):
    masks, torch = masking
    blocks = masks.blockwise_overlay(torch.from_numpy(np.zeros((1, 12), int)))
    for function, name in ((masks.or_masks(masks.causal_mask_function, blocks), "or_masks"), (blocks, "blockwise_overlay"),
                           (masks.and_masks(masks.causal_mask_function, lambda *_: True), "<lambda>")):
        with pytest.raises(hilbert_ring.InvalidArgumentError, match=name):
            read(function, np.arange(12)[None])


@pytest.mark.parametrize("call, what", [
    (lambda: every_query(keys([1] * 4, [0] * 4), 3), "every key of row 1"),
    (lambda: banded(keys([1] * 4), 3, 2, True, (None, None)), "3 queries of tokens from 2 and 4 keys"),
    (lambda: banded(keys([1] * 4), 3, -1, True, (None, None)), "3 queries"),
    (lambda: banded(keys([1] * 4), 3, 0, False, (1, 1)), "3 queries"),
    (lambda: banded(HOLE, 4, 0, True, (1, None)), "padding within a text"),
    (lambda: banded(keys([1] * 4), 4, 0, True, (None, None), np.array([[0, 1, 0, 1]])), "interleaved"),
])
def test_what_cannot_be_packed(call, what):
    with pytest.raises(hilbert_ring.InvalidArgumentError, match=what):
        call()


def test_a_long_text_takes_no_table():
    padding = np.ones((2, 200_000), bool)
    padding[0, :7] = False
    seen = banded(padding, 200_000, 0, True, (1023, None))
    assert seen.lengths_k.tolist() == [199_993, 200_000] and seen.window == (1023, None)
