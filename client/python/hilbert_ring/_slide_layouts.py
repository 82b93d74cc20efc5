"""The layouts of slide pipelines' files: which data sets they have, and which attributes give a tile's side in
the unit of the coordinates. docs/encoder.md has the same table in words."""
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
_NEAR_WHOLE = 0.01  # level downsamples such as 4.0001, of levels whose sides are rounded


@dataclass(frozen=True)
class Layout:
    """What a pipeline writes.

    Attributes:
        side: the attribute that is a tile's side, in the unit of the coordinates.
        times: an attribute that it is multiplied by.
        overlap: two attributes, the overlap of neighbours and the side, in pixels as cut.
        unit: the value of the attribute `unit`.
        columns: of the coordinates, x and y first.
        one_grid: a step between neighbours is a tile less the overlap everywhere. Elsewhere each
            contour of tissue begins a grid, or the overlap is not written.
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
        """The attributes that tell the layout."""
        others = (self.times, *(self.overlap or ()), "unit" if self.unit else None)
        return [self.side, *(name for name in others if name)]

    def fits(self, attributes: Attributes) -> bool:
        unit = attributes.get("unit")
        unit = unit.decode(errors="replace") if isinstance(unit, bytes) else unit
        return all(mark in attributes for mark in self.marks) and (self.unit is None or unit == self.unit)


# In this order: the first that fits is the file's.
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


@dataclass(frozen=True)
class Tile:
    """A tile in the unit of its coordinates.

    Attributes:
        side: in x and in y.
        overlap: of neighbours; None: no step between neighbours is known.
    """

    side: "NDArray[np.float64]"
    overlap: Optional[float]


def fits_any(attributes: Attributes) -> bool:
    """Whether some layout has these attributes."""
    return any(layout.fits(attributes) for layout in LAYOUTS)


def layout_of(attributes: Attributes, columns: int, wanted: Optional[str], scale_told: bool,
              of: str) -> Optional[Layout]:
    """The layout of a file with these attributes and so many columns of coordinates; None: no layout fits.

    Raises:
        InvalidArgumentError: the layout that is wanted does not fit.
    """
    named = [layout for layout in LAYOUTS if wanted in (None, layout.name)]
    found = [layout for layout in named if layout.columns == columns
             and (layout.fits(attributes) or scale_told and wanted is not None)]
    if found or wanted is None:
        return found[0] if found else None
    first = named[0]
    unit = f", unit '{first.unit}'," if first.unit else ""
    raise InvalidArgumentError(
        f"layout is {wanted}, must have attributes {first.marks}{unit} and {first.columns} columns; {of} have "
        f"attributes {sorted(attributes)} and {columns} columns", field="layout")


def tile_of(layout: Layout, attributes: Attributes) -> Tile:
    """
    Raises:
        InvalidArgumentError: an attribute is no number that fits.
    """
    side = _numbers(attributes, layout.side)
    if layout.times:
        times = _numbers(attributes, layout.times)
        whole = np.rint(times)
        side = side * np.where(np.abs(times - whole) <= _NEAR_WHOLE * whole, whole, times)
    if not layout.one_grid:
        return Tile(side, None)
    overlap = 0.0
    if layout.overlap:
        cut = _numbers(attributes, layout.overlap[1])[0]
        pixels = _numbers(attributes, layout.overlap[0], least=0)[0]
        if pixels >= cut:
            raise InvalidArgumentError(f"attribute {layout.overlap[0]} is {pixels:g}, must be below "
                                       f"{layout.overlap[1]}, {cut:g}", field=layout.overlap[0])
        overlap = float(pixels / cut * side[0])
    return Tile(side, overlap)


def _numbers(attributes: Attributes, name: str, least: Optional[float] = None) -> "NDArray[np.float64]":
    """Of x and of y. They must be above 0, or `least` and more."""
    array = np.asarray(attributes[name])
    numbers = array.astype(np.float64).ravel() if array.dtype.kind in "iuf" else np.array([])
    if numbers.size not in (1, 2) or not np.isfinite(numbers).all() \
            or not (numbers > 0 if least is None else numbers >= least).all():
        limit = "above 0" if least is None else f"{least:g} or more"
        raise InvalidArgumentError(f"attribute {name} is {array.tolist()!r}, must be a number {limit}", field=name)
    return np.broadcast_to(numbers, (2,))


def features_of(view: View, wanted: Optional[str]) -> str:
    """The data set of tiles' features; `wanted`: its name, also without that of its group.

    Raises:
        InvalidArgumentError: the file has none or several.
    """
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
    """The data set of coordinates, or those of x and of y; None: the file has none.

    Raises:
        InvalidArgumentError: it does not have the wanted one.
    """
    if wanted is not None:
        return [_named(view, "coords", [wanted], wanted)]
    found = [name for name in _COORDS if name in view.arrays][:1]
    return found or (_AXES if all(axis in view.arrays for axis in _AXES) else None)


def _named(view: View, field: str, names: Sequence[str], wanted: str) -> str:
    for name in names:
        if name in view.arrays:
            return name
    raise InvalidArgumentError(f"{view.path} has no data set '{wanted}'; it has {sorted(view.arrays)}", field=field)
