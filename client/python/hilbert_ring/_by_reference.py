"""Jobs whose tensors lie in files that client and service both see: they are named in place of
being sent, and the service's workers read and write them.

    parts = parts_of(call)                        # None: its tensors are to be sent
    named = with_files(call, parts, root, None)   # root: the service's GetDataRootResponse

That both see the same folder is shown by a file of the service's in it, whose random word the
service tells. As client/cpp/by_reference.cc.
"""
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, FrozenSet, List, Optional, Union

from hilbert_ring._attempt import JobCall
from hilbert_ring._chunks import Inputs, tensor_name
from hilbert_ring._files import FileOutput, FilePart, NotInFile, flush, part_of
from hilbert_ring._tensors import Output
from hilbert_ring._warn import warn
from hilbert_ring.errors import FailedPreconditionError, HilbertRingError
from hilbert_ring.v1 import attention_pb2 as pb

CHOICES = ("auto", "always", "never")

# A job that failed so may well be done where its tensors are sent.
_MAY_SEND: FrozenSet[str] = frozenset({
    "NO_DATA_ROOT", "DATA_ROOT_GONE", "FILE_PATH", "FILE_NOT_FOUND", "FILE_NOT_PERMITTED", "FILE_MISSHAPEN"})
_ARGUMENTS = {pb.TENSOR_COORDS: "ordering.coords", pb.TENSOR_TILE_COORDS: "coords",
              pb.TENSOR_STATES: "out", pb.TENSOR_ATTENTION_MAP: "attention_map_out"}
_MARK_BYTES = 128

Parts = Dict[Any, FilePart]  # of inputs, by tensor


def may_send(call: JobCall) -> FrozenSet[str]:
    """The reasons after which its tensors are sent."""
    return _MAY_SEND if call.by_reference == "auto" else frozenset()


def warn_of_sending(error: HilbertRingError, reasons: FrozenSet[str]) -> None:
    """Says that a job is done, and slower. An error of other reasons is raised."""
    if error.reason not in reasons:
        raise error
    warn(f"tensors are sent, since the service cannot use the files: {error}", RuntimeWarning)


def parts_of(call: JobCall) -> Optional[Parts]:
    """Where the inputs lie; None: tensors are to be sent.

    Raises:
        FailedPreconditionError: tensors are to be named, and one is in no file.
    """
    if call.by_reference == "never":
        return None
    try:
        return _parts(call)
    except FailedPreconditionError:
        if call.by_reference == "always":
            raise
        return None


def _parts(call: JobCall) -> Parts:
    for tensor, output in call.outputs.items():
        if tensor != pb.TENSOR_POOLED and not isinstance(output, FileOutput):
            raise _not_named(tensor, "is an array, and by reference a path")
    parts: Parts = {}
    for tensor in call.inputs.readers:
        try:
            parts[tensor] = part = part_of(call.arrays[tensor])
        except NotInFile as why:
            raise _not_named(tensor, str(why)) from None
        if tensor == call.inputs.ahead and not part.whole:
            raise _not_named(tensor, "is not the whole array of a .npy file")
        wide = tensor == pb.TENSOR_TILE_COORDS
        if wide and call.arrays[tensor].dtype != "<f8":
            raise _not_named(tensor, f"is {call.arrays[tensor].dtype}, and by reference float64")
    return parts


def _not_named(tensor: Any, why: str) -> FailedPreconditionError:
    argument = _ARGUMENTS.get(tensor, tensor_name(tensor).lower())
    return FailedPreconditionError(f"by_reference: {argument} {why}", field=argument)


def with_files(call: JobCall, parts: Parts, root: pb.GetDataRootResponse,
               seen: Optional[Path]) -> Optional[JobCall]:
    """The job with its files named; None: tensors are to be sent.

    Args:
        root: the service's.
        seen: where this machine has it; None: where the service has.

    Raises:
        FailedPreconditionError: tensors are to be named, and the service does not see them.
    """
    try:
        return _named(call, parts, root, seen)
    except FailedPreconditionError:
        if call.by_reference == "always":
            raise
        return None


def _named(call: JobCall, parts: Parts, root: pb.GetDataRootResponse,
           seen: Optional[Path]) -> JobCall:
    folder = folder_of(root, seen or Path(root.path), call.by_reference)
    opening = pb.Open()
    opening.CopyFrom(call.open)
    opening.files.extend(tensor_files(call, parts, folder))
    files: Dict[Any, Union[Output, FileOutput]] = {}
    outputs = {}
    for tensor, output in call.outputs.items():
        if tensor == pb.TENSOR_POOLED or not isinstance(output, FileOutput):
            outputs[tensor] = output
            continue
        files[tensor] = output
        opening.files.add(tensor=tensor, path=beneath(folder, tensor, output.path))
    return replace(call, open=opening, inputs=Inputs(call.inputs.rows, {}, {}), outputs=outputs,
                   files=files)


def tensor_files(call: JobCall, parts: Parts, folder: str) -> List[pb.TensorFile]:
    """Of inputs, as Open names them.

    Raises:
        FailedPreconditionError: one does not lie beneath the folder.
    """
    files = []
    for tensor, part in parts.items():
        flush(call.arrays[tensor])
        file = pb.TensorFile(tensor=tensor, path=beneath(folder, tensor, Path(part.path)))
        if not part.whole:
            file.raw.offset = part.offset
            file.raw.shape.extend(call.arrays[tensor].shape)
            file.raw.dtype = call.dtypes[tensor]
        files.append(file)
    return files


def folder_of(root: pb.GetDataRootResponse, seen: Path, by_reference: str) -> str:
    """The caller's, as this machine sees it. "always": workers that see it may come yet, for whom
    the job's call waits.

    Raises:
        FailedPreconditionError: this machine does not see it, or no worker does.
    """
    line = _first_line(seen / root.mark_file)
    if not line or line.decode("ascii", "replace") != root.mark:
        raise FailedPreconditionError(
            f"by_reference: {str(seen)}: is not the service's data root, for the mark "
            f"{root.mark_file} is not there or is another")
    if root.workers == 0 and by_reference != "always":
        raise FailedPreconditionError("by_reference: no worker of the service sees its data root")
    return os.path.realpath(seen / root.folder)


def _first_line(path: Path) -> bytes:
    """Nothing where there is no file with one."""
    try:
        with path.open("rb") as file:
            line, end, _ = file.read(_MARK_BYTES).partition(b"\n")
    except (OSError, ValueError):
        return b""
    return line if end else b""


def beneath(folder: str, tensor: Any, path: Path) -> str:
    """A tensor's file, as Open names it; raises FailedPreconditionError where it lies elsewhere."""
    try:
        found = path.relative_to(folder).as_posix()
        found.encode("utf-8")
        return found
    except UnicodeEncodeError:
        raise _not_named(tensor, f"is {os.fsencode(path)!r}, which is not UTF-8") from None
    except ValueError:
        raise _not_named(tensor, f"is {path}, which does not lie beneath {folder}, the caller's "
                         "folder of the service's data root") from None
