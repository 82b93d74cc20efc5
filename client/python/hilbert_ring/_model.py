"""What a service says of a model, checked before anything is made of it."""
import json

from hilbert_ring._legible import legible
from hilbert_ring._spec import check_text
from hilbert_ring.errors import FailedPreconditionError, InternalError
from hilbert_ring.v1 import encoder_pb2 as encoder_pb

# Of engine/model/files/encoder_config.h.
_MOST_WIDTH = 1 << 16
_MOST_LAYERS = 1024
_MOST_GRID = 1 << 24  # cells of a side, and pixels of one


def model_request(name: str) -> encoder_pb.GetModelRequest:
    """Raises InvalidArgumentError of a name that no model has."""
    check_text("model", name)
    return encoder_pb.GetModelRequest(name=name)


def check_name(model: encoder_pb.Model, name: str) -> encoder_pb.Model:
    """The model, which is the one that was asked for.

    Raises:
        InternalError: it is another one.
    """
    if model.name != name:
        raise InternalError(f"the service gave model '{legible(model.name)}', asked for was '{name}'")
    return model


def check_model(model: encoder_pb.Model) -> None:
    """
    Raises:
        FailedPreconditionError: the model cannot be used.
        InternalError: no model is like that.
    """
    if model.error:
        raise FailedPreconditionError(f"the model cannot be used: {legible(model.error)}")
    _check_range(model, "tile_dim", 1, _MOST_WIDTH)
    _check_range(model, "embed_dim", 1, _MOST_WIDTH)
    _check_range(model, "layers", 1, _MOST_LAYERS)
    _check_range(model, "heads", 1, model.embed_dim)
    if model.positions:
        _check_range(model, "grid_pixels", 1, _MOST_GRID**2)
        tile_size(model)


def tile_size(model: encoder_pb.Model) -> int:
    """The side of a tile in pixels, of a model with positions.

    Raises:
        InternalError: its config has none.
    """
    try:
        size = json.loads(model.config)["position"]["tile_size"]
    except (ValueError, TypeError, LookupError):
        size = None
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= _MOST_GRID:
        raise InternalError(f"model {model.name} of the service: config is for tiles with a side of {size!r}, must "
                            f"be 1 to {_MOST_GRID}", field="config", limit=_MOST_GRID)
    return size


def _check_range(model: encoder_pb.Model, field: str, least: int, most: int) -> None:
    value = getattr(model, field)
    if not least <= value <= most:  # true of NaN
        raise InternalError(f"model {model.name} of the service: {field} is {value}, must be "
                            f"{least} to {most}", field=field, limit=least if value < least else most)
