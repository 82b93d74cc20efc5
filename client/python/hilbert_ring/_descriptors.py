"""Makes message classes from the descriptors that the build compiled from the proto.

They live in a pool of their own and do not clash with code that a program generated itself.
"""
from pathlib import Path
from typing import Any, Dict

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

_pool = descriptor_pool.DescriptorPool()
_files = descriptor_pb2.FileDescriptorSet.FromString(
    Path(__file__).with_name("descriptors.binpb").read_bytes())
for _file in _files.file:
    _pool.Add(_file)

if hasattr(message_factory, "GetMessageClass"):
    _class_of = message_factory.GetMessageClass
else:  # before protobuf 4.22
    _class_of = getattr(message_factory.MessageFactory(_pool), "GetPrototype")


def _message(descriptor: Any) -> Any:
    """Returns the class of a message, with the classes of its nested messages."""
    message = _class_of(descriptor)
    for name, nested in descriptor.nested_types_by_name.items():
        if not hasattr(message, name):
            setattr(message, name, _message(nested))
    return message


def names_of(proto: str) -> Dict[str, Any]:
    """Returns the names that generated code of this file would define: messages, enums, values of enums."""
    file = _pool.FindFileByName(proto)
    names: Dict[str, Any] = {
        name: _message(message) for name, message in file.message_types_by_name.items()}
    for name, enum in file.enum_types_by_name.items():
        names[name] = enum_type_wrapper.EnumTypeWrapper(enum)
        names.update({value.name: value.number for value in enum.values})
    return names
