"""Families of transformers' models by the service and by eager attention, with the same weights.

The last test makes the table of docs/python.md, if all others have run.
"""
import re
import urllib.request
from pathlib import Path

import pytest

import hilbert_ring

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from hilbert_ring import _model_tensors, _packed  # noqa: E402
from model_families import BATCH, FAMILIES, generated, inputs_of, main_output, model_of  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs/python.md"
MARKS = "<!-- families: made by ./dev python-check -->\n", "<!-- end of families -->\n"
LARGEST, SEEDS, MOST = 1e-5, range(1, 5), 1.1
right = {}  # by family: the columns of the table in which it is as eager attention


@pytest.fixture(scope="module")
def jobs():
    """Yields a function that returns how many jobs the service has computed."""
    import hilbert_ring.transformers
    service = hilbert_ring.LocalService(workers=2)
    with service as client:
        hilbert_ring.transformers.register("families", client)

        def count():
            with urllib.request.urlopen(f"http://127.0.0.1:{service.ready['http_port']}/metrics") as page:
                return int(re.search(r'^hilbert_ring_jobs_total\{.*code="OK".*\} (\d+)', page.read().decode() +
                                     '\nhilbert_ring_jobs_total{code="OK"} 0', re.MULTILINE)[1])
        yield count


def by(model, attention, function):
    model.set_attn_implementation(attention)
    with torch.no_grad():
        return function()


def check(model, function, real=slice(None)):
    ours, theirs = (by(model, name, function)[real].double() for name in ("families", "eager"))
    assert ours.shape == theirs.shape
    off = (ours - theirs).abs().max() / theirs.abs().max()
    assert off < LARGEST


NAMES = [name for name in FAMILIES if name != "T5"]


@pytest.mark.parametrize("padded", [False, True], ids=["forward", "padded"])
@pytest.mark.parametrize("name", NAMES)
def test_forward(jobs, name, padded):
    model = model_of(name)
    for given in inputs_of(model, padded):
        before = jobs()
        check(model, lambda: main_output(model(**given.given)), slice(None) if given.real is None else given.real)
        assert jobs() - before == FAMILIES[name].calls
        right.setdefault(name, set()).add("padded batch" if padded else "forward")


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("name", [name for name in NAMES if model_of(name).can_generate()])
def test_generate(jobs, name, cache, monkeypatch):
    model, before, asked = model_of(name), jobs(), []
    monkeypatch.setattr(_packed, "attend", lambda q, *given, **more: asked.append(len(q)) or _model_tensors.attend(
        q, *given, **more))
    check(model, lambda: generated(model, cache))
    first = 2 if model.config.is_encoder_decoder else FAMILIES[name].calls  # layers of the encoder, or of the prompt
    steps = 8 * 4 if model.config.is_encoder_decoder else 7 * first
    assert jobs() - before == len(asked) == first + steps
    assert asked[first:] == [BATCH] * steps and min(asked[:first]) > BATCH  # a step has one query of each row
    right.setdefault(name, set()).add("static cache" if cache else "generate")


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16(jobs, name):
    """Compares the errors of both with float32, over random models."""
    errors = {"families": 0.0, "eager": 0.0}
    for seed in SEEDS:
        model = model_of(name, seed).bfloat16().float()
        exact = by(model, "eager", lambda: main_output(model(**inputs_of(model, False)[0].given)))
        model = model.bfloat16()
        given = inputs_of(model, False, torch.bfloat16)[0].given
        for attention in errors:
            made = by(model, attention, lambda: main_output(model(**given)))
            errors[attention] += (made.double() - exact).square().mean().item()
    assert errors["families"] <= MOST**2 * errors["eager"]
    right.setdefault(name, set()).add("bfloat16")


def test_a_position_bias_is_refused(jobs):
    model = model_of("T5")
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="position_bias"):
        by(model, "families", lambda: model(**inputs_of(model, False)[0].given))
    right["T5"] = {"refused"}


def test_the_table():
    if set(right) != set(FAMILIES):
        pytest.skip("not all families have run")
    columns = ["forward", "padded batch", "generate", "static cache", "bfloat16"]
    rows = [["family", "attention", *columns], ["---"] * 7]
    for name, family in FAMILIES.items():
        rows.append([name, family.attention, *(
            "refused" if "refused" in right[name] else "as eager" if column in right[name] else "–" for column in columns)])
    made = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    page = PAGE.read_text()
    begin, end = page.index(MARKS[0]) + len(MARKS[0]), page.index(MARKS[1])
    if page[begin:end] != f"\n{made}\n":
        PAGE.write_text(f"{page[:begin]}\n{made}\n{page[end:]}")
        pytest.fail(f"{PAGE.name} had another table, and has this one now")
