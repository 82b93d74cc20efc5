"""Jobs whose tensors lie in files that client and service both see.

The job passes the paths, and the service's workers read and write the files: no row passes a socket. Arrays in memory
reach a service on this host in scratch files, if its data root lies in memory too.

    naming = naming_of(call)           # None: the tensors must be sent
    named = naming.name(root, None)    # root: the service's GetDataRootResponse; None: the tensors must be sent
    done = naming.take(named)          # after the job: with its outputs
    naming.close()                     # in any case

The service puts a file with a random word in its folder and returns the word: a client that reads the same word sees
the same folder. client/cpp/by_reference.cc and client/cpp/shared_memory_job.cc do the same.
"""
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Tuple, Union

import numpy as np

from hilbert_ring._conversation import JobCall
from hilbert_ring._chunks import Inputs, tensor_name
from hilbert_ring._files import FileOutput, FilePart, NotInFile, flush, part_of
from hilbert_ring._scratch import NoScratch, Scratch, check_room, lies_in_memory, make_scratch
from hilbert_ring._tensors import Output
from hilbert_ring._torch_streams import torch_if_loaded
from hilbert_ring._warn import warn
from hilbert_ring.errors import FailedPreconditionError, HilbertRingError
from hilbert_ring.v1 import attention_pb2 as pb

CHOICES = ("auto", "always", "never")

# Smaller jobs are sent. Compared with sending, jobs of 2 MiB took 0.25 to 5 times the time, of 8 MiB 0.70 to 0.96,
# of 32 MiB 0.69 to 0.80, at a third to a half of the client's processor time (Intel Xeon with AMX, 2 cores,
# load 17 to 20; bench/shared_arrays.py).
SHARED_BYTES = 8 << 20
# Smaller rows in an order of coordinates are sent. Workers write them nearly one by one. Jobs of 128 MiB with random
# coordinates took 1.36 times the time of sending with rows of 128 bytes, 1.26 with 256, 0.81 with 512 (AMD EPYC,
# Zen 4, 2 cores, load 6; bench/shared_arrays.py).
SCATTERED_ROW_BYTES = 512
ASK_SECONDS = 5.0  # for the data root: a service that does not answer is not on this host

# After a failure with one of these reasons the job may succeed if its tensors are sent.
_MAY_SEND: FrozenSet[str] = frozenset({
    "NO_DATA_ROOT", "DATA_ROOT_GONE", "FILE_PATH", "FILE_NOT_FOUND", "FILE_NOT_PERMITTED", "FILE_MISSHAPEN"})
# Scratch files add the reasons of a full disk in memory, which sent tensors do not need.
_MAY_SEND_SHARED: FrozenSet[str] = frozenset({"FILE_NO_SPACE", "FILE_IO"})
_ARGUMENTS = {pb.TENSOR_COORDS: "ordering.coords", pb.TENSOR_BIAS_COORDS: "bias_coords", pb.TENSOR_TILE_COORDS: "coords",
              pb.TENSOR_STATES: "out", pb.TENSOR_ATTENTION_MAP: "attention_map_out"}
_MARK_BYTES = 128
_BLOCK_BYTES = 8 << 20
_CPU_OF_DLPACK = 1
_COORDINATES: "Dict[Any, np.dtype[Any]]" = {pb.TENSOR_COORDS: np.dtype("<u4"), pb.TENSOR_BIAS_COORDS: np.dtype("<f4"),
                                             pb.TENSOR_TILE_COORDS: np.dtype("<f8")}

Parts = Dict[Any, FilePart]  # of inputs, by tensor
_Outputs = Dict[Any, Union[Output, FileOutput]]


def warn_of_sending(error: HilbertRingError, reasons: FrozenSet[str]) -> None:
    """Warns that a job's tensors are sent, which is slower. Raises an error that has other reasons."""
    if error.reason not in reasons:
        raise error
    warn(f"tensors are sent, since the service cannot use the files: {error}", RuntimeWarning)


def naming_of(call: JobCall) -> Optional["Naming"]:
    """Returns the naming of a job whose tensors lie in files or in memory; None: the tensors must be sent.

    Raises:
        FailedPreconditionError: by_reference is "always", and a tensor lies in no file.
    """
    if call.by_reference == "never":
        return None
    parts, fault = _parts(call)
    if fault is not None and call.by_reference == "always":
        raise fault
    naming = Naming(call, parts, fault is None)
    return naming if fault is None or naming.may_share_memory() else None


def _parts(call: JobCall) -> Tuple[Parts, Optional[FailedPreconditionError]]:
    """Returns the places of inputs that lie in files, and an error if some tensor does not."""
    faults = [_not_named(tensor, "is an array, must be a path") for tensor, output in call.outputs.items()
              if tensor != pb.TENSOR_POOLED and not isinstance(output, FileOutput)]
    parts: Parts = {}
    for tensor in call.inputs.readers:
        array = call.arrays[tensor]
        try:
            part = part_of(array)
            if tensor in call.inputs.ahead and not part.whole:
                raise NotInFile("is not the whole array of a .npy file")
            if tensor == pb.TENSOR_TILE_COORDS and array.dtype != "<f8":
                raise NotInFile(f"is {array.dtype}, must be float64")
            parts[tensor] = part
        except NotInFile as why:
            faults.append(_not_named(tensor, str(why)))
    return parts, faults[0] if faults else None


def _not_named(tensor: Any, why: str) -> FailedPreconditionError:
    argument = _ARGUMENTS.get(tensor, tensor_name(tensor).lower())
    return FailedPreconditionError(f"by_reference: {argument} {why}", field=argument)


def _in_memory(array: Any) -> bool:
    """Returns whether the array's rows lie in memory, and are not read from elsewhere as they are sent."""
    torch = torch_if_loaded()
    if torch is not None and isinstance(array, torch.Tensor):
        return bool(array.device.type == "cpu")
    if isinstance(array, np.ndarray):
        return not isinstance(array, np.memmap)
    if hasattr(array, "__dlpack_device__"):
        return bool(array.__dlpack_device__()[0] == _CPU_OF_DLPACK)
    try:
        memoryview(array)
        return True
    except TypeError:
        return False


class Naming:
    """The files of a job, from `name` to `close`. Any thread may call `stop`; the rest is for one thread at a time."""

    def __init__(self, call: JobCall, parts: Parts, in_files: bool) -> None:
        """parts: places of the inputs that lie in files; in_files: all tensors lie in files."""
        self.in_files = in_files
        self._call = call
        self._parts = parts
        self._scratch: Optional[Scratch] = None
        self._stopped = False
        self._outputs: Dict[Any, str] = {}  # names in the scratch folder, by tensor

    @property
    def may_send(self) -> FrozenSet[str]:
        """The reasons of a failure of the named job after which its tensors are sent."""
        if self._call.by_reference != "auto":
            return frozenset()
        return _MAY_SEND if self._scratch is None else _MAY_SEND | _MAY_SEND_SHARED

    def may_share_memory(self) -> bool:
        """Returns whether the tensors outside of files lie in memory and are large enough for scratch files."""
        call = self._call
        if pb.TENSOR_COORDS in call.inputs.readers and call.inputs.row_bytes[pb.TENSOR_Q] < SCATTERED_ROW_BYTES:
            return False
        size = call.inputs.total_bytes() + sum(
            output.nbytes for tensor, output in call.outputs.items() if tensor != pb.TENSOR_POOLED)
        return size >= SHARED_BYTES and all(
            tensor in self._parts or _in_memory(call.arrays[tensor]) for tensor in call.inputs.readers)

    def name(self, root: pb.GetDataRootResponse, seen: Optional[Path]) -> Optional[JobCall]:
        """Writes the scratch files and returns the job with all paths; None: its tensors must be sent.

        Args:
            seen: the path of the service's data root on this machine; None: the service's own path.

        Raises:
            FailedPreconditionError: by_reference is "always", and the service does not see the files.
        """
        path = seen or Path(root.path)
        try:
            return self._named(_folder_of(root, path, self._call.by_reference), path / root.mark_file)
        except NoScratch as why:
            if why.warn and not self._stopped:
                warn(f"tensors are sent, not shared in memory: {why}", RuntimeWarning)
        except (HilbertRingError, OSError):
            if self._call.by_reference == "always":
                raise
        self.close()
        return None

    def _named(self, folder: str, mark: Path) -> Optional[JobCall]:
        call = self._call
        opening = pb.Open()
        opening.CopyFrom(call.open)
        opening.files.extend(_tensor_files(call, self._parts, folder))
        sent: _Outputs = {}
        files: _Outputs = {}
        scratched: _Outputs = {}
        for tensor, output in call.outputs.items():
            if tensor == pb.TENSOR_POOLED:
                sent[tensor] = output
                continue
            try:
                opening.files.add(tensor=tensor, path=_beneath(folder, tensor, output))
                files[tensor] = output
            except FailedPreconditionError:
                if call.by_reference == "always":
                    raise
                scratched[tensor] = output
        written = [tensor for tensor in call.inputs.readers if tensor not in self._parts]
        if written or scratched:
            if not self.may_share_memory() or not lies_in_memory(folder):
                return None
            self._use_scratch(folder, os.stat(mark).st_uid, written, scratched, opening)
        return replace(call, open=opening, inputs=Inputs({}, {}, {}), outputs=sent,
                       files={**files, **scratched})

    def _use_scratch(self, folder: str, service_user: int, written: List[Any], scratched: _Outputs,
                     opening: pb.Open) -> None:
        inputs = self._call.inputs
        self._scratch = make_scratch(folder, service_user)
        check_room(folder, sum(inputs.rows[tensor] * inputs.row_bytes[tensor] for tensor in written)
                   + sum(output.nbytes for output in scratched.values()) - self._scratch.bytes())
        for output in scratched.values():
            len(output.bytes)  # a file takes its room on its own disk before the job runs
        if self._stopped:
            raise NoScratch("the job has ended")
        for tensor in written:
            self._write(tensor, opening)
        for tensor in scratched:
            name = self._outputs[tensor] = tensor_name(tensor).lower()
            opening.files.add(tensor=tensor, path=self._scratch.path(name))

    def _write(self, tensor: Any, opening: pb.Open) -> None:
        assert self._scratch is not None
        call = self._call
        name = tensor_name(tensor).lower()
        dtype = _COORDINATES.get(tensor)
        if dtype is not None:
            shape = call.inputs.rows[tensor], call.inputs.row_bytes[tensor] // dtype.itemsize
            opening.files.add(tensor=tensor, path=self._scratch.write(
                name, _blocks(call.inputs, tensor, _header(dtype, shape))))
            return
        array = call.arrays[tensor]
        file = opening.files.add(tensor=tensor,
                                 path=self._scratch.write(name, _blocks(call.inputs, tensor)))
        file.raw.shape.extend(array.shape if hasattr(array, "shape") else memoryview(array).shape)
        file.raw.dtype = call.dtypes[tensor]

    def take(self, named: JobCall) -> JobCall:
        """Returns the finished job with outputs that need no scratch file.

        Raises:
            HilbertRingError: an output is missing.
        """
        if self._scratch is None:
            return named
        outputs = dict(named.outputs)
        files = dict(named.files)
        for tensor, name in self._outputs.items():
            output = files.pop(tensor)
            try:
                data = self._scratch.take(name, output.nbytes)
            except NoScratch as why:
                raise HilbertRingError(f"output in shared memory: {why}") from None
            over = None if isinstance(output, FileOutput) else output.over
            if over is not None:
                outputs[tensor] = over(data)
            else:
                output.bytes.reshape(-1)[:] = data
                outputs[tensor] = output
        if self._scratch.keep():
            self._scratch = None
        return replace(named, outputs=outputs, files=files)

    def stop(self) -> None:
        """Lets `name` end soon and return None."""
        self._stopped = True
        if self._scratch is not None:
            self._scratch.stop()

    def close(self) -> None:
        """Removes the scratch files. May be called again."""
        if self._scratch is not None:
            self._scratch.close()


def _tensor_files(call: JobCall, parts: Parts, folder: str) -> List[pb.TensorFile]:
    """Returns Open's entries of the inputs that lie in files.

    Raises:
        FailedPreconditionError: a file does not lie beneath the folder.
    """
    files = []
    for tensor, part in parts.items():
        flush(call.arrays[tensor])
        file = pb.TensorFile(tensor=tensor, path=_path_beneath(folder, tensor, Path(part.path)))
        if not part.whole:
            file.raw.offset = part.offset
            file.raw.shape.extend(call.arrays[tensor].shape)
            file.raw.dtype = call.dtypes[tensor]
        files.append(file)
    return files


def _folder_of(root: pb.GetDataRootResponse, seen: Path, by_reference: str) -> str:
    """Returns the caller's folder of the data root, as this machine sees it.

    by_reference: "always" accepts a data root that no worker sees yet: the job's call waits for such workers.

    Raises:
        FailedPreconditionError: this machine does not see the data root, or no worker does.
    """
    line = _first_line(seen / root.mark_file)
    if not line or line.decode("ascii", "replace") != root.mark:
        raise FailedPreconditionError(
            f"by_reference: {str(seen)}: is not the service's data root: the mark "
            f"{root.mark_file} is missing or differs")
    if root.workers == 0 and by_reference != "always":
        raise FailedPreconditionError("by_reference: no worker of the service sees its data root")
    return os.path.realpath(seen / root.folder)


def _first_line(path: Path) -> bytes:
    """Returns b"" if there is no such file, or its first line has no end."""
    try:
        with path.open("rb") as file:
            line, end, _ = file.read(_MARK_BYTES).partition(b"\n")
    except (OSError, ValueError):
        return b""
    return line if end else b""


def _beneath(folder: str, tensor: Any, output: Union[Output, FileOutput]) -> str:
    if not isinstance(output, FileOutput):
        raise _not_named(tensor, "is an array, must be a path")
    return _path_beneath(folder, tensor, output.path)


def _path_beneath(folder: str, tensor: Any, path: Path) -> str:
    """Returns the path of a tensor's file for Open; raises FailedPreconditionError if it lies elsewhere."""
    try:
        found = path.relative_to(folder).as_posix()
        found.encode("utf-8")
        return found
    except UnicodeEncodeError:
        raise _not_named(tensor, f"is {os.fsencode(path)!r}, which is not UTF-8") from None
    except ValueError:
        raise _not_named(tensor, f"is {path}, which does not lie beneath {folder}, the caller's "
                         "folder of the service's data root") from None


def _blocks(inputs: Inputs, tensor: Any, header: bytes = b"") -> Iterator[memoryview]:
    yield memoryview(header)
    rows = max(1, _BLOCK_BYTES // inputs.row_bytes[tensor])
    for first in range(0, inputs.rows[tensor], rows):
        yield inputs.readers[tensor](first, min(rows, inputs.rows[tensor] - first))


def _header(dtype: "np.dtype[Any]", shape: Tuple[int, ...]) -> bytes:
    """Returns the header of a .npy file."""
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(made, {"descr": dtype.str, "fortran_order": False,
                                                "shape": shape})
    return made.getvalue()
