"""Requests and checks a service's models."""
import json

from hilbert_ring._spec import check_text
from hilbert_ring.errors import FailedPreconditionError
from hilbert_ring.v1 import encoder_pb2 as encoder_pb


def model_request(name: str) -> encoder_pb.GetModelRequest:
    """Raises InvalidArgumentError if no model can have the name."""
    check_text("model", name)
    return encoder_pb.GetModelRequest(name=name)


def check_model(model: encoder_pb.Model) -> None:
    """Raises FailedPreconditionError if the model cannot be used."""
    if model.error:
        raise FailedPreconditionError(f"the model cannot be used: {model.error}")


def tile_size(model: encoder_pb.Model) -> int:
    """Returns the side of a tile in pixels. The model must have positions."""
    return int(json.loads(model.config)["position"]["tile_size"])
