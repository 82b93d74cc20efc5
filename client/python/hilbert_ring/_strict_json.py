"""Reads a user's JSON as strictly as the C++ programs do."""
import json
from pathlib import Path
from typing import Any, Dict, List, NoReturn, Tuple


def read_json(path: Path) -> Any:
    """
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
