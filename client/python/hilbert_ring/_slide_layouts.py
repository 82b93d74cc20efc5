"""The layouts of slide pipelines' files: their data sets, and the attributes that give a tile's side.

docs/encoder.md describes the same table.
"""
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._slide_files import View
from hilbert_ring.errors import InvalidArgumentError

Attributes = Mapping[str, Any]

_FEATURES = ("features", "feats")
_COORDS = ("coords", "coordinates")
_AXES = ("x", "y")
_NEAR_WHOLE = 0.01  # downsamples such as 4.0001, of levels with rounded sides


@dataclass(frozen=True)
class Layout:
    """The format of a pipeline's files.

    Attributes:
        side: the attribute with a tile's side, in the unit of the coordinates.
        times: an attribute that multiplies `side`.
        overlap: two attributes, the overlap of neighbours and the side, in pixels as cut.
        unit: the required value of the attribute `unit`.
        columns: number of columns of the coordinates, x and y first.
        one_grid: each step between neighbours is a tile less the overlap. False: each contour of tissue begins a
            grid, or the file does not give the overlap.
    """

    name: str
    side: str
    times: Optional[str] = None
    overlap: Optional[Tuple[str, str]] = None
    unit: Optional[str] = None
    columns: int = 2
    one_grid: bool = False

    @property
    def marks(self) -> List[str]:
        """The attributes by which the layout is recognised."""
        others = (self.times, *(self.overlap or ()), "unit" if self.unit else None)
        return [self.side, *(name for name in others if name)]

    def fits(self, attributes: Attributes) -> bool:
        unit = attributes.get("unit")
        unit = unit.decode(errors="replace") if isinstance(unit, bytes) else unit
        return all(mark in attributes for mark in self.marks) and (self.unit is None or unit == self.unit)


# The first layout that fits is the file's.
LAYOUTS = (
    Layout("atlaspatch", side="patch_size_level0", columns=5),
    Layout("trident", side="patch_size_level0", overlap=("overlap", "patch_size"), one_grid=True),
    Layout("raw2features", side="patch_size_level0"),
    Layout("stamp", side="tile_size_um", unit="um", one_grid=True),
    Layout("stamp", side="tile_size", unit="um", one_grid=True),  # of versions before 2.1
    Layout("slide2vec", side="tile_size_lv0"),
    Layout("clam", side="patch_size", times="downsample"),
)
NAMES = tuple(dict.fromkeys(layout.name for layout in LAYOUTS))


def fits_any(attributes: Attributes) -> bool:
    return any(layout.fits(attributes) for layout in LAYOUTS)


def layout_of(attributes: Attributes, columns: int, wanted: Optional[str], scale_given: bool,
              of: str) -> Optional[Layout]:
    """Returns the layout of a file with these attributes and columns of coordinates; None: no layout fits."""
    named = [layout for layout in LAYOUTS if wanted in (None, layout.name)]
    found = [layout for layout in named if layout.columns == columns
             and (layout.fits(attributes) or scale_given and wanted is not None)]
    if found or wanted is None:
        return found[0] if found else None
    first = named[0]
    unit = f", unit '{first.unit}'," if first.unit else ""
    raise InvalidArgumentError(
        f"layout is {wanted}, must have attributes {first.marks}{unit} and {first.columns} columns; {of} have "
        f"attributes {sorted(attributes)} and {columns} columns", field="layout")


def tile_of(layout: Layout, attributes: Attributes) -> "Tuple[NDArray[np.float64], Optional[float]]":
    """Returns a tile's sides in x and y, and the overlap of neighbours (None: unknown), in its coordinates' unit."""
    side = _numbers(attributes, layout.side)
    if layout.times:
        times = _numbers(attributes, layout.times)
        whole = np.rint(times)
        side = side * np.where(np.abs(times - whole) <= _NEAR_WHOLE * whole, whole, times)
    if not layout.one_grid:
        return side, None
    overlap = 0.0
    if layout.overlap:
        cut = _numbers(attributes, layout.overlap[1])[0]
        pixels = _numbers(attributes, layout.overlap[0], least=0)[0]
        if pixels >= cut:
            raise InvalidArgumentError(f"attribute {layout.overlap[0]} is {pixels:g}, must be below "
                                       f"{layout.overlap[1]}, {cut:g}", field=layout.overlap[0])
        overlap = float(pixels / cut * side[0])
    return side, overlap


def _numbers(attributes: Attributes, name: str, least: Optional[float] = None) -> "NDArray[np.float64]":
    """Returns an attribute's numbers of x and y, which must be above 0, or at least `least`."""
    array = np.asarray(attributes[name])
    numbers = array.astype(np.float64).ravel() if array.dtype.kind in "iuf" else np.array([])
    if numbers.size not in (1, 2) or not np.isfinite(numbers).all() \
            or not (numbers > 0 if least is None else numbers >= least).all():
        limit = "above 0" if least is None else f"{least:g} or more"
        raise InvalidArgumentError(f"attribute {name} is {array.tolist()!r}, must be a number {limit}", field=name)
    return np.broadcast_to(numbers, (2,))


def features_of(view: View, wanted: Optional[str]) -> str:
    """Returns the name of the data set of features. wanted: the name, with or without its group."""
    if wanted is not None:
        return _named(view, "features", [wanted, *(f"{group}/{wanted}" for group in _FEATURES)], wanted)
    for name in _FEATURES:
        if name in view.arrays:
            return name
        members = [member for member in view.arrays if member.startswith(name + "/")]
        if len(members) == 1:
            return members[0]
        if members:
            names = [member[len(name) + 1:] for member in sorted(members)]
            raise InvalidArgumentError(f"{view.path} has features of {len(names)} encoders, {names}: name one of "
                                       "them (--features)", field="features")
    return _named(view, "features", _FEATURES, "' or '".join(_FEATURES))


def coords_of(view: View, wanted: Optional[str]) -> Optional[Sequence[str]]:
    """Returns the name of the data set of coordinates, or the names of x and y; None: the file has no coordinates."""
    if wanted is not None:
        return [_named(view, "coords", [wanted], wanted)]
    found = [name for name in _COORDS if name in view.arrays][:1]
    return found or (_AXES if all(axis in view.arrays for axis in _AXES) else None)


def _named(view: View, field: str, names: Sequence[str], wanted: str) -> str:
    for name in names:
        if name in view.arrays:
            return name
    raise InvalidArgumentError(f"{view.path} has no data set '{wanted}'; it has {sorted(view.arrays)}", field=field)
