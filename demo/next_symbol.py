"""Prediction of the next symbol of a text as attention, without weights.

Row t predicts symbol t + 1. Its query is the code of the last 24 symbols up to t. The key of row s is the code of the
24 symbols before symbol s, and its value is symbol s. A symbol counts more if the symbols before it resemble the last
symbols. Causal attention lets row t see the rows up to t:

    out[t] = sum_s softmax_s(score(t, s)) onehot(symbol s),    a distribution over the alphabet
    lse[t] = log(sum_s exp(score(t, s))),                      the amount of evidence

An alphabet's symbols have codes of length 1, and place i of the context weighs STRENGTH * DECAY^i. The prediction adds
a key of score `PRIOR` with the uniform distribution as its value:

    p = (exp(lse) out + exp(PRIOR) / symbols) / (exp(lse) + exp(PRIOR))
"""
import gzip
from dataclasses import dataclass

import numpy as np

from demo_command import DemoError

CONTEXT = 24                 # symbols
LARGEST_CODE = 240 // CONTEXT
SEED = 24
BASES = b"ACGTNRYKMSWBDHVU"  # of nucleic acids in FASTA


@dataclass(frozen=True)
class Weighing:
    strength: float
    decay: float
    prior: float


# Tuned on the demo's default text and on 120,000 bases of a human gene: strength 1 to 6, decay 0.8 to 1, prior 0 to 24.
OF_BASES = Weighing(1.5, 0.95, 14.0)
OF_TEXT = Weighing(3.0, 0.8, 8.0)


@dataclass(frozen=True)
class Text:
    symbols: np.ndarray      # [n], indices of the alphabet
    alphabet: bytes
    kind: str                # "bases" or "bytes"

    @property
    def weighing(self):
        return OF_BASES if self.kind == "bases" else OF_TEXT


def read(path, limit=None):
    """Reads a file (also .gz): bases of FASTA, else bytes."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        data = file.read()
    kind = "bytes"
    if data.startswith(b">"):
        lines = [line.strip() for line in data.splitlines() if not line.startswith(b">")]
        data, kind = b"".join(lines).upper(), "bases"
        if not set(data) <= set(BASES):
            raise DemoError(f"{path} begins as FASTA does, but holds more than bases")
    data = data[:limit]
    if len(data) < 2:
        raise DemoError(f"{path} holds {len(data)} symbols, expected 2 or more")
    alphabet, symbols = np.unique(np.frombuffer(data, np.uint8), return_inverse=True)
    return Text(symbols, alphabet.tobytes(), kind)


def codes(symbols):
    """Returns a code of length 1 for each symbol: [symbols, dims].

    A few symbols are the corners of a simplex, at equal distances. Many symbols point in random directions.
    """
    if symbols - 1 <= LARGEST_CODE:
        corners = np.eye(symbols) - 1 / symbols
        result = corners @ np.linalg.svd(corners)[2][:max(symbols - 1, 1)].T
    else:
        result = np.random.default_rng(SEED).standard_normal((symbols, LARGEST_CODE))
    return result / np.maximum(np.linalg.norm(result, axis=1, keepdims=True), 1e-9)


def attention_inputs(text):
    """Returns q, k, v of the job, float32 [tokens, 1, dims]; its scale is 1."""
    count, symbols = len(text.symbols), len(text.alphabet)
    code = codes(symbols)
    weights = text.weighing.strength * text.weighing.decay**np.arange(CONTEXT)
    # Row t is the context of symbol t. Places before the text have the code 0.
    contexts = np.zeros((count + 1, CONTEXT, code.shape[1]), np.float32)
    for place, weight in enumerate(weights):
        contexts[place + 1:, place] = np.sqrt(weight) * code[text.symbols[:max(count - place, 0)]]
    contexts = contexts.reshape(count + 1, 1, -1)
    v = np.zeros((count, 1, -(-symbols // 8) * 8), np.float32)
    v[np.arange(count), 0, text.symbols] = 1
    return contexts[1:], contexts[:-1], v


def bits_per_symbol(text, out, lse):
    """Returns the mean bits of the predictions, over the text and over its last tenth."""
    bits = bits_of_each(text, out, lse)
    return float(bits.mean()), float(bits[-max(1, len(bits) // 10):].mean())


def bits_of_each(text, out, lse):
    """Returns -log2 of the predicted probability of each symbol except the first: [n - 1]."""
    prior = text.weighing.prior
    predicted = np.asarray(out[np.arange(len(text.symbols) - 1), 0, text.symbols[1:]], np.float64)
    trust = 1 / (1 + np.exp(np.clip(prior - np.asarray(lse[:-1, 0], np.float64), -700, 700)))
    probability = trust * np.clip(predicted, 0, 1) + (1 - trust) / len(text.alphabet)
    return -np.log2(probability)
