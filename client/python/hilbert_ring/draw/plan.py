"""Draws a plan: the slots of each worker, and the transfers of each step."""
import json
from typing import Any, Dict, List

from hilbert_ring._job_flags import Job
from hilbert_ring.draw.svg import FAINT, INK, Svg, color_of
from hilbert_ring.errors import OutOfRangeError, UnavailableError

MOST_WORKERS = 16  # plans of more workers list no transfers
MOST_STEPS = 15
_GAP, _TOP, _BAR, _WIDTH = 28.0, 66.0, 20.0, 720.0
_STEP, _NODE = 150.0, 26.0


def binary(count: float) -> str:
    for limit, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count:.0f} B"


def draw_plan(job: Job, answer: Any) -> Svg:
    """Draws the plan of a job. answer: of Client.plan for the same job.

    Raises:
        OutOfRangeError: there are more workers than MOST_WORKERS.
        UnavailableError: the service is too old to list transfers.
    """
    plan: Dict[str, Any] = json.loads(answer.json)
    workers: List[Dict[str, Any]] = plan["workers"]
    if len(workers) > MOST_WORKERS:
        raise OutOfRangeError(f"workers is {len(workers)}, a picture of a plan shows up to "
                              f"{MOST_WORKERS}", field="workers", limit=MOST_WORKERS)
    if "transfers" not in plan:
        raise UnavailableError("the service's plan lists no transfers: the service is too old")
    steps = min(int(plan["ring_steps"]), MOST_STEPS)
    per_row = max(1, int((_WIDTH - _GAP) // _STEP))
    bars = _TOP + len(workers) * (_BAR + 6)
    row_height = len(workers) * _NODE + 48
    rows = -(-steps // per_row)
    size = f"{plan['tokens']:,} tokens"
    if _keys(plan) != plan["tokens"]:
        size = f"{plan['tokens']:,} queries and {_keys(plan):,} keys"
    picture = Svg(_WIDTH, bars + 40 + rows * row_height + _GAP,
                  f"The plan of {size} over {len(workers)} workers")
    picture.text(_GAP, 24, f"{size} over {len(workers)} workers", size=15, bold=True)
    branches = "; ".join(f"w {b['segment']:,} r {b['dilation']}" for b in plan["branches"])
    causal = ", causal" if job.pattern.get("causal") else ""
    picture.text(_GAP, 42, f"{branches}{causal}: slots and memory of each worker")
    _shards(picture, plan, workers)
    naive = plan["bytes_exchanged_naive"]
    exchanged = f"{binary(plan['bytes_exchanged'])} in {plan['ring_steps']} steps" if plan["ring_steps"] else "0 bytes"
    travels = f", {plan['travels']} travel" if "travels" in plan else ""
    picture.text(_GAP, bars + 24, f"Exchanged: {exchanged}{travels} (a naive ring: {binary(naive)})", bold=True)
    for step in range(1, steps + 1):
        row, column = divmod(step - 1, per_row)
        _step(picture, step, [t for t in plan["transfers"] if t["step"] == step], len(workers),
              _GAP + column * _STEP, bars + 40 + row * row_height)
    return picture


def _keys(plan: Dict[str, Any]) -> int:
    return int(plan.get("key_tokens", plan["tokens"]))  # absent: by an older service


def _shards(picture: Svg, plan: Dict[str, Any], workers: List[Dict[str, Any]]) -> None:
    left, right = _GAP + 70, _WIDTH - 110
    for rank, worker in enumerate(workers):
        top = _TOP + rank * (_BAR + 6)
        picture.text(_GAP, top + 14, f"worker {rank}")
        picture.rect(left, top, right - left, _BAR, fill=FAINT)
        for begin, end in worker["shard"]:
            scale = (right - left) / max(1, _keys(plan))
            picture.rect(left + begin * scale, top, (end - begin) * scale, _BAR,
                         fill=color_of(rank), title=f"slots {begin:,} to {end:,}")
        picture.text(right + 8, top + 14, binary(worker["resident_bytes"]))


def _step(picture: Svg, number: int, transfers: List[Dict[str, Any]], workers: int, left: float,
          top: float) -> None:
    picture.text(left, top + 14, f"step {number}: {binary(sum(t['bytes'] for t in transfers))}",
                 size=11)
    most = max((t["bytes"] for t in transfers), default=1)
    sender, receiver = left + 10, left + _STEP - 44
    for t in transfers:
        picture.line(sender + 8, top + 36 + t["from"] * _NODE, receiver - 9,
                     top + 36 + t["to"] * _NODE, width=1 + 2.5 * t["bytes"] / most, arrow=True,
                     stroke=color_of(t["from"]),
                     title=f"worker {t['from']} to {t['to']}: {binary(t['bytes'])}")
    for rank in range(workers):
        y = top + 36 + rank * _NODE
        for x in (sender, receiver):
            picture.circle(x, y, 8, fill=color_of(rank))
            picture.text(x, y + 3.5, str(rank), size=10, anchor="middle",
                         fill="#ffffff" if color_of(rank) != INK else FAINT)
