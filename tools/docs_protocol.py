#!/usr/bin/env python3
"""Writes docs/protocol.md, the calls and messages of the public protos; with --check it compares the page.

It needs protoc and its Python module of descriptors (Debian: python3-protobuf).
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "protocol.md"
PROTOS = ["hilbert_ring/v1/attention.proto", "hilbert_ring/v1/encoder.proto"]
HEAD = """# Reference: the protocol

Made by `tools/docs_protocol.py` (`./dev docs`) from the comments in `proto/hilbert_ring/v1`; a test compares it. The
protos are installed in `share/hilbert_ring/proto` and generate clients in other languages.
[path_of_a_row.md](path_of_a_row.md) follows one call, [errors.md](errors.md) lists the errors. New fields get new
numbers, and no field changes its meaning.
"""
Field = descriptor_pb2.FieldDescriptorProto
SERVICE, MESSAGE, ENUM = 6, 4, 5               # numbers of FileDescriptorProto's fields, in paths
FIELD_OF, MESSAGE_OF, ENUM_OF, METHOD_OF, VALUE_OF = 2, 3, 4, 2, 2


def compiled():
    """Returns the descriptors of the protos, with comments."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "descriptors"
        subprocess.run(["protoc", f"--proto_path={ROOT / 'proto'}", "--include_source_info", f"--descriptor_set_out={out}",
                        *PROTOS], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file


def comments_of(file):
    """Returns the comments before and behind each declaration, by its path."""
    return {tuple(place.path): " ".join(f"{place.leading_comments} {place.trailing_comments}".split())
            for place in file.source_code_info.location}


def cell(text):
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_ ", "\\_ ")


def type_of(field, maps):
    if field.type_name in maps:
        key, value = maps[field.type_name].field
        return f"map of {type_of(key, maps)} to {type_of(value, maps)}"
    if field.type_name:
        name = field.type_name.removeprefix(".hilbert_ring.v1.").removeprefix(".")
        return f"`{name}`"
    return Field.Type.Name(field.type).removeprefix("TYPE_").lower()


def label_of(field, message, maps):
    if field.label == Field.LABEL_REPEATED and field.type_name not in maps:
        return "repeated "
    if field.proto3_optional:
        return "optional "
    if field.HasField("oneof_index"):
        return f"one of {message.oneof_decl[field.oneof_index].name}: "
    return ""


def described(name, comment):
    return f"**`{name}`**" + (f": {comment}" if comment else "")


def item(words, comment):
    return f"- {words}" + (f": {cell(comment)}" if comment else "")


def message_lines(message, name, path, comments):
    maps = {f".hilbert_ring.v1.{name}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
    yield described(name, comments.get(path))
    for i, field in enumerate(message.field):
        yield item(f"`{field.name}` = {field.number}, {label_of(field, message, maps)}{type_of(field, maps)}",
                   comments.get((*path, FIELD_OF, i)))
    yield ""
    for i, enum in enumerate(message.enum_type):
        yield from enum_lines(enum, f"{name}.{enum.name}", (*path, ENUM_OF, i), comments)
    for i, nested in enumerate(message.nested_type):
        if not nested.options.map_entry:
            yield from message_lines(nested, f"{name}.{nested.name}", (*path, MESSAGE_OF, i), comments)


def enum_lines(enum, name, path, comments):
    yield described(name, comments.get(path))
    for i, value in enumerate(enum.value):
        yield item(f"`{value.name}` = {value.number}", comments.get((*path, VALUE_OF, i)))
    yield ""


def service_lines(service, path, comments):
    yield described(service.name, comments.get(path))
    for i, method in enumerate(service.method):
        takes, gives = (("stream of " if streams else "") + f"`{name.rsplit('.', 1)[1]}`" for name, streams in (
            (method.input_type, method.client_streaming), (method.output_type, method.server_streaming)))
        yield item(f"`{method.name}` takes {takes}, gives {gives}", comments.get((*path, METHOD_OF, i)))
    yield ""


def page():
    lines = [HEAD]
    for file in compiled():
        comments = comments_of(file)
        lines.append(f"## {Path(file.name).name}\n")
        for i, service in enumerate(file.service):
            lines += service_lines(service, (SERVICE, i), comments)
        for i, message in enumerate(file.message_type):
            lines += message_lines(message, message.name, (MESSAGE, i), comments)
        for i, enum in enumerate(file.enum_type):
            lines += enum_lines(enum, enum.name, (ENUM, i), comments)
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    made = page()
    if not parser.parse_args().check:
        PAGE.write_text(made)
    elif not PAGE.exists() or PAGE.read_text() != made:
        print("docs/protocol.md differs from the protos: run ./dev docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
