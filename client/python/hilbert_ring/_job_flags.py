"""Reads a job of a command line: a spec's file in the form of `hilbert-ring`, and flags that replace its fields."""
import argparse
import json
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Dict, List, NoReturn, Optional, Tuple

from hilbert_ring._files import checked_path, opened
from hilbert_ring._command_line import sides, whole_number, whole_numbers
from hilbert_ring._spec import coordinate_values
from hilbert_ring.errors import InvalidArgumentError, OutOfRangeError
from hilbert_ring.ordering import Auto, Hilbert, Morton, Ordering

_SHAPE = ("tokens", "key_tokens", "heads", "kv_heads", "head_dim", "value_dim", "dtype")
_PATTERN = ("segments", "dilations", "mixing", "causal", "scale", "tail", "average_groups",
            "sequence_lengths", "key_sequence_lengths", "align", "window", "softcap", "alibi", "sinks")
_DIMS = ("head_dim", "value_dim")
_MOST_HEADS = 4096  # as a service's limit
_MOST_TOKENS = 1 << 40
_CURVES = {"hilbert": Hilbert, "morton": Morton, "auto": Auto}


@dataclass(frozen=True)
class Job:
    """Shape and pattern of a job.

    Attributes:
        shape: the known ones of tokens, key_tokens, heads, kv_heads, head_dim, value_dim, dtype.
        pattern: the arguments of Client.attend that determine which query sees which key.
        ordering: None: the given order of tokens.
    """

    shape: Dict[str, Any]
    pattern: Dict[str, Any]
    ordering: Optional[Ordering] = field(default=None)

    def need(self, *names: str) -> None:
        """Raises InvalidArgumentError if the shape lacks one of the names."""
        for name in names:
            if name not in self.shape:
                raise InvalidArgumentError(f"{name} is missing: --{name.replace('_', '-')}",
                                           field=name)

    def pairs(self) -> List[Tuple[int, int]]:
        """Returns the queries and keys of each sequence."""
        return list(zip(*_lengths({**self.shape, **self.pattern})))

    def plan_arguments(self) -> Dict[str, Any]:
        """Returns the arguments of Client.plan."""
        self.need("tokens", "heads", "head_dim")
        return {**self.shape, **self.pattern, "ordering": self.ordering}


def add_job_flags(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Adds the flags of `hilbert-ring plan` for the spec. defaults: of fields that neither file nor flag gives."""
    parser.add_argument("--spec", type=Path, metavar="FILE", help="the job, as JSON; flags replace "
                        "its fields, or stand alone")
    for name in ("tokens", "key-tokens", "heads", "kv-heads", "head-dim", "value-dim"):
        parser.add_argument(f"--{name}", type=whole_number, metavar="N")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"))
    for name, what in (("segments", "lengths, one a branch: 2048,16384"),
                       ("dilations", "rates, one a branch: 1,8"),
                       ("sequence-lengths", "queries of packed sequences: 100,200"),
                       ("key-sequence-lengths", "keys of these sequences: 100,200"),
                       ("grid", "of the ordering: rows,cols")):
        parser.add_argument(f"--{name}", type=whole_numbers, metavar="N,...", help=what)
    parser.add_argument("--align", choices=("end", "start"), help="position of query i among m keys of n queries: "
                        "i + m - n, or i")
    parser.add_argument("--mixing", choices=("head_groups", "lse"))
    parser.add_argument("--causal", action="store_true", default=None)
    parser.add_argument("--curve", choices=("hilbert", "morton", "auto", "none"),
                        help="of the ordering; auto: as the service finds")
    parser.add_argument("--scope", choices=("qkv", "kv"))
    parser.add_argument("--ordering-window", type=whole_number, metavar="N", help="of the ordering, tokens")
    parser.add_argument("--window", type=sides, metavar="LEFT,RIGHT",
                        help="tokens before and after its own that a query sees: 1023,0; none: no bound")
    parser.set_defaults(job_defaults=defaults)


def job_of(arguments: argparse.Namespace) -> Job:
    """Returns the job of the flags.

    Raises:
        InvalidArgumentError, OSError: the spec's file cannot be read, or holds no job.
    """
    fields = dict(arguments.job_defaults)
    folder = Path()
    if arguments.spec is not None:
        folder = arguments.spec.parent
        try:
            found = read_json(arguments.spec)
        except ValueError as error:
            raise InvalidArgumentError(f"{arguments.spec}: {error}", field="spec") from None
        if not isinstance(found, dict):
            raise InvalidArgumentError(f"{arguments.spec} holds no JSON object", field="spec")
        unknown = set(found) - {*_SHAPE, *_PATTERN, "ordering"}
        if unknown:
            raise InvalidArgumentError(f"{arguments.spec} has the unknown field {min(unknown)}",
                                       field=min(unknown))
        fields.update(found)
    for name in (*_SHAPE, *_PATTERN):
        given = getattr(arguments, name, None)
        if given is not None:
            fields[name] = given
    ordering_given = fields.get("ordering")
    if ordering_given is not None and not isinstance(ordering_given, dict):
        raise InvalidArgumentError(f"ordering is {ordering_given!r}, must be an object", field="ordering")
    order = {**(ordering_given or {}), **{
        name: getattr(arguments, flag) for name, flag in (("curve", "curve"), ("scope", "scope"),
                                                          ("window", "ordering_window"), ("grid", "grid"))
        if getattr(arguments, flag) is not None}}
    if not fields.get("segments"):
        raise InvalidArgumentError("segments are missing: --segments 2048,16384", field="segments")
    _check_numbers(fields, order)
    ordering = _ordering(order, folder)
    _check_rectangle(fields, ordering)
    _check_window(fields, ordering)
    return Job({name: fields[name] for name in _SHAPE if fields.get(name) is not None},
               {name: fields[name] for name in _PATTERN if fields.get(name) is not None}, ordering)


def _check_numbers(fields: Dict[str, Any], order: Dict[str, Any]) -> None:
    """Checks numbers with the errors of engine/spec/job_spec.cc."""
    segments, dilations = fields["segments"], fields.get("dilations")
    lengths, tokens, heads = fields.get("sequence_lengths"), fields.get("tokens"), fields.get("heads")
    key_lengths, keys = fields.get("key_sequence_lengths"), fields.get("key_tokens")
    numbers: List[Tuple[str, Any, Optional[int], Optional[int]]] = [
        ("tokens", tokens, 1, _MOST_TOKENS), ("key_tokens", keys, 0, _MOST_TOKENS), ("heads", heads, 1, _MOST_HEADS),
        ("kv_heads", fields.get("kv_heads"), 1, None), ("ordering.window", order.get("window"), 0, None)]
    numbers += [(name, fields.get(name), None, None) for name in _DIMS]
    for name, given, least, most in (
            ("segments", segments, 1, _MOST_TOKENS), ("dilations", dilations, 1, _MOST_TOKENS),
            ("sequence_lengths", lengths, 0, None), ("key_sequence_lengths", key_lengths, 0, None),
            ("ordering.grid", order.get("grid"), 1, None)):
        if given is not None and not isinstance(given, list):
            raise InvalidArgumentError(f"{name} is {given!r}, must be a list of integers", field=name)
        numbers += [(f"{name}[{place}]", value, least, most) for place, value in enumerate(given or ())]
    for name, value, smallest, limit in numbers:
        _check_number(name, value, smallest, limit)
    if dilations and len(dilations) != len(segments):
        raise InvalidArgumentError(f"segments has {len(segments)} entries, but dilations has {len(dilations)}",
                                   field="dilations")
    if heads and heads % (fields.get("kv_heads") or 1):
        raise InvalidArgumentError(f"kv_heads is {fields['kv_heads']}, must divide heads {heads}",
                                   field="kv_heads")
    if lengths and tokens and sum(lengths) != tokens:
        raise InvalidArgumentError(f"sequence_lengths add up to {sum(lengths)}, but tokens is {tokens}",
                                   field="sequence_lengths")
    all_keys = tokens if keys is None else keys
    if key_lengths and all_keys is not None and sum(key_lengths) != all_keys:
        raise InvalidArgumentError(f"key_sequence_lengths add up to {sum(key_lengths)}, but key_tokens is {all_keys}",
                                   field="key_sequence_lengths")
    of_queries, of_keys = _lengths(fields)
    if len(of_queries) != len(of_keys):
        raise InvalidArgumentError(f"key_sequence_lengths has {len(key_lengths or ())} entries, must have as many as "
                                   f"sequence_lengths: {len(lengths or ())}", field="key_sequence_lengths")
    if order.get("grid") is not None:
        _check_grid(order["grid"], order.get("window"), fields)


def _lengths(fields: Dict[str, Any]) -> Tuple[List[int], List[int]]:
    """Returns the queries of each sequence, and the keys; without a known number, no sequences."""
    tokens, keys = fields.get("tokens"), fields.get("key_tokens")
    of_queries = fields.get("sequence_lengths") or ([] if tokens is None else [tokens])
    return of_queries, fields.get("key_sequence_lengths") or (of_queries if keys in (None, tokens) else [keys])


def _check_rectangle(fields: Dict[str, Any], ordering: Optional[Ordering]) -> None:
    align = fields.get("align") or "end"
    if align not in ("end", "start"):
        raise InvalidArgumentError(f"align is {align!r}, must be 'end' or 'start'", field="align")
    for queries, keys in zip(*_lengths(fields)):
        if 0 in (queries, keys) or queries == keys or (queries < keys and align == "end"):
            continue
        what, field = f"tokens is {queries} with key_tokens {keys}", "key_tokens"
        if align == "start":
            what, field = f"align is start with {queries} queries and {keys} keys", "align"
        if ordering is not None:
            raise InvalidArgumentError(f"{what}, ordering must be absent", field=field)
        segments = fields["segments"]
        for place, (segment, dilation) in enumerate(zip(segments, fields.get("dilations") or [1] * len(segments))):
            if dilation > 1:
                raise InvalidArgumentError(f"{what}, dilations[{place}] is {dilation}, must be 1", field=field)
            if segment < keys:
                raise InvalidArgumentError(f"{what}, segments[{place}] is {segment}, must be at least the keys",
                                           field=field)


def _check_grid(grid: List[int], window: Optional[int], fields: Dict[str, Any]) -> None:
    if len(grid) not in (2, 3):
        raise InvalidArgumentError(f"ordering.grid has {len(grid)} entries, must have 2 or 3", field="ordering.grid")
    if window:
        raise InvalidArgumentError(f"ordering.window is {window}, must be 0 with ordering.grid", field="ordering.window")
    cells = prod(grid)
    square = fields.get("key_tokens") in (None, fields.get("tokens"))
    of_keys = "key_" if fields.get("key_sequence_lengths") or not square else ""
    packed = fields.get("key_sequence_lengths") or square and fields.get("sequence_lengths")
    for place, length in enumerate(_lengths(fields)[1]):
        if length != cells and not (packed and length == 0):
            what, of = f"{of_keys}tokens", " per"
            if packed:
                what, of = f"{of_keys}sequence_lengths[{place}]", " of every sequence a"
            raise InvalidArgumentError(f"ordering.grid {grid} has {cells} cells, but {what} is {length}: a grid must hold "
                                       f"exactly one token{of} cell", field="ordering.grid")


def _check_window(fields: Dict[str, Any], ordering: Optional[Ordering]) -> None:
    window = fields.get("window")
    if window is None:
        return
    if not isinstance(window, list) or len(window) != 2:
        raise InvalidArgumentError(f"window is {window!r}, must be [left, right], each an integer or null", field="window")
    for place, side in enumerate(window):
        _check_number(f"window[{place}]", side, 0, None)
    excluding = [f"dilations[{place}] {value}" for place, value in enumerate(fields.get("dilations") or ()) if value > 1]
    excluding += ["ordering"] if ordering is not None else []
    excluding += ["tail zero"] if fields.get("tail") == "zero" else []
    if excluding and window != [None, None]:
        shown = ", ".join("null" if side is None else str(side) for side in window)
        raise InvalidArgumentError(f"window is [{shown}], must be absent with {excluding[0]}", field="window")


def _check_number(name: str, value: Any, least: Optional[int], limit: Optional[int]) -> None:
    """least: None: the number is the size of a head."""
    if value is None:
        return
    field = name.partition("[")[0]
    if type(value) is not int:  # a bool is no number
        raise InvalidArgumentError(f"{name} is {value!r}, must be an integer", field=field)
    if least is None and not (8 <= value <= 256 and value % 8 == 0):
        raise InvalidArgumentError(f"{name} is {value}, must be 8 to 256 in steps of 8", field=field)
    if least is not None and value < least:
        raise InvalidArgumentError(f"{name} is {value}, must be at least {least}", field=field)
    if limit is not None and value > limit:
        raise OutOfRangeError(f"{name} is {value}, must be at most {limit}", field=field)


def coords_path_of(arguments: argparse.Namespace) -> Optional[Path]:
    """Returns the path of the spec's coordinates; None: no coordinates, or no valid spec, which job_of reports."""
    try:
        name = read_json(arguments.spec)["ordering"]["coords_file"]
        return Path(arguments.spec.parent / name)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _ordering(fields: Dict[str, Any], folder: Path) -> Optional[Ordering]:
    if not fields or fields.get("curve") == "none":
        return None
    curve = fields.pop("curve", "hilbert")
    if curve not in _CURVES:
        raise InvalidArgumentError(f"ordering.curve is {curve!r}, expected hilbert, morton or "
                                   "auto", field="ordering.curve")
    coords = fields.pop("coords", None)
    if fields.get("coords_file"):
        coords = opened("ordering.coords_file", folder / checked_path("ordering.coords_file", fields["coords_file"]))
    if coords is not None:
        coords = coordinate_values("ordering.coords", coords, "integers")
    if coords is not None and (coords.ndim != 2 or coords.shape[1] not in (2, 3)):
        raise InvalidArgumentError(f"ordering.coords has shape {coords.shape}, must be [tokens, 2] or [tokens, 3]",
                                   field="ordering.coords")
    fields = {name: value for name, value in fields.items()
              if name in ("grid", "window", "scope")}
    ordering: Ordering = _CURVES[curve](coords=coords, **fields)
    return ordering


def read_json(path: Path) -> Any:
    """Reads a user's JSON as strictly as the C++ programs do.

    Raises:
        ValueError, OSError: it is no JSON, an object has a key twice, or a number is not finite.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_object, parse_constant=_not_finite)
    except RecursionError:
        raise ValueError("nests too deep") from None


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    fields: Dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ValueError(f'field "{name}" is given more than once')
        fields[name] = value
    return fields


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")
