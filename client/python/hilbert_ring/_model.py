"""What a service says of a model."""
import json

from hilbert_ring._spec import check_text
from hilbert_ring.errors import FailedPreconditionError
from hilbert_ring.v1 import encoder_pb2 as encoder_pb


def model_request(name: str) -> encoder_pb.GetModelRequest:
    """Raises InvalidArgumentError of a name that no model has."""
    check_text("model", name)
    return encoder_pb.GetModelRequest(name=name)


def check_model(model: encoder_pb.Model) -> None:
    """Raises FailedPreconditionError of a model that cannot be used."""
    if model.error:
        raise FailedPreconditionError(f"the model cannot be used: {model.error}")


def tile_size(model: encoder_pb.Model) -> int:
    """The side of a tile in pixels, of a model with positions."""
    return int(json.loads(model.config)["position"]["tile_size"])
