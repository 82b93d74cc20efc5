"""Jobs whose arrays lie in memory, handed to a service on this host: they are written to scratch files
of its data root, which lies in memory too, and the job names these. No row passes a socket.

    handing = handing_of(call)            # None: its tensors are to be sent
    handed = handing.name(root, None)     # root: the service's GetDataRootResponse
    handed = handing.take(handed)         # once it is done: with its outputs
    handing.close()                       # in any case

A tensor that lies in a file of the root already is named as it is (_by_reference.py).
"""
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterator, Optional, Tuple, Union

import numpy as np

from hilbert_ring._attempt import JobCall
from hilbert_ring._by_reference import Parts, folder_of, beneath, may_send, tensor_files
from hilbert_ring._chunks import Inputs, tensor_name
from hilbert_ring._files import FileOutput, NotInFile, part_of
from hilbert_ring._scratch import NoScratch, Scratch, check_room, lies_in_memory, make_scratch
from hilbert_ring._tensors import Output
from hilbert_ring._torch_streams import torch_if_loaded
from hilbert_ring._warn import warn
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.v1 import attention_pb2 as pb

# Of a job's arrays, at least. Jobs of 2 MiB took from a quarter of to five times the time of sending,
# of 8 MiB 0.70 to 0.96 of it, of 32 MiB 0.69 to 0.80, at a third to a half of the client's processor time
# (Intel Xeon with AMX, 2 cores, load 17 to 20; bench/handed_arrays.py).
HANDED_BYTES = 8 << 20
ASK_SECONDS = 5.0  # for the data root: a service that does not answer is not on this host

_Outputs = Dict[Any, Union[Output, FileOutput]]

_BLOCK_BYTES = 8 << 20
_CPU_OF_DLPACK = 1
_COORDINATES: "Dict[Any, np.dtype[Any]]" = {pb.TENSOR_COORDS: np.dtype("<u4"), pb.TENSOR_TILE_COORDS: np.dtype("<f8")}
# What a full disk in memory makes of a job may be no error where its tensors are sent.
_MAY_SEND: FrozenSet[str] = frozenset({"FILE_NO_SPACE", "FILE_IO"})


def may_send_handed(call: JobCall) -> FrozenSet[str]:
    """The reasons after which its tensors are sent."""
    return may_send(call) | _MAY_SEND


def handing_of(call: JobCall) -> Optional["Handing"]:
    """Of a job whose tensors lie in memory, or in files; None: they are to be sent."""
    if call.by_reference != "auto":
        return None
    size = call.inputs.total_bytes() + sum(
        output.nbytes for tensor, output in call.outputs.items() if tensor != pb.TENSOR_POOLED)
    if size < HANDED_BYTES:
        return None
    parts: Parts = {}
    for tensor in call.inputs.readers:
        try:
            parts[tensor] = part_of(call.arrays[tensor])
        except NotInFile:
            if not _in_memory(call.arrays[tensor]):
                return None
    return Handing(call, parts)


def _in_memory(array: Any) -> bool:
    """Not what is read from somewhere as it is sent."""
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


class Handing:
    """The scratch files of a job, from `name` to `close`: for one thread at a time; `stop` is for any."""

    def __init__(self, call: JobCall, parts: Parts) -> None:
        """parts: of inputs that lie in files."""
        self._call = call
        self._parts = parts
        self._scratch: Optional[Scratch] = None
        self._stopped = False
        self._outputs: Dict[Any, str] = {}  # names in the scratch folder, by tensor

    def name(self, root: pb.GetDataRootResponse, seen: Optional[Path]) -> Optional[JobCall]:
        """The job with its files named, which are written; None: its tensors are to be sent.

        Args:
            seen: where this machine has the service's data root; None: where the service has.
        """
        path = seen or Path(root.path)
        try:
            folder = folder_of(root, path, self._call.by_reference)
            if not lies_in_memory(folder):
                return None
            return self._named(folder, os.stat(path / root.mark_file).st_uid)
        except NoScratch as why:
            if why.told and not self._stopped:
                warn(f"tensors are sent, not handed over in memory: {why}", RuntimeWarning)
        except (HilbertRingError, OSError):
            pass
        self.close()
        return None

    def _named(self, folder: str, service_user: int) -> JobCall:
        call = self._call
        opening = pb.Open()
        opening.CopyFrom(call.open)
        opening.files.extend(tensor_files(call, self._parts, folder))
        outputs, files, scratched = self._split_outputs(folder, opening)
        written = [tensor for tensor in call.inputs.readers if tensor not in self._parts]
        check_room(folder, sum(call.inputs.rows * call.inputs.row_bytes[tensor] for tensor in written)
                   + sum(output.nbytes for output in scratched.values()))
        for output in scratched.values():
            len(output.bytes)  # a file takes its room on its own disk before the job runs
        self._scratch = make_scratch(folder, service_user)
        if self._stopped:
            raise NoScratch("the job has ended")
        for tensor in written:
            self._write(tensor, opening)
        for tensor in scratched:
            name = self._outputs[tensor] = tensor_name(tensor).lower()
            opening.files.add(tensor=tensor, path=self._scratch.path(name))
        return replace(call, open=opening, inputs=Inputs(call.inputs.rows, {}, {}), outputs=outputs,
                       files={**files, **scratched})

    def _split_outputs(self, folder: str, opening: pb.Open) -> Tuple[
            _Outputs, _Outputs, _Outputs]:
        """Those that are sent, that the workers write where they are wanted, and that lie in scratch."""
        sent: _Outputs = {}
        files: _Outputs = {}
        scratched: _Outputs = {}
        for tensor, output in self._call.outputs.items():
            if tensor == pb.TENSOR_POOLED:
                sent[tensor] = output
                continue
            if isinstance(output, FileOutput):
                try:
                    opening.files.add(tensor=tensor, path=beneath(folder, tensor, output.path))
                    files[tensor] = output
                    continue
                except HilbertRingError:
                    pass
            scratched[tensor] = output
        return sent, files, scratched

    def _write(self, tensor: Any, opening: pb.Open) -> None:
        assert self._scratch is not None
        call = self._call
        name = tensor_name(tensor).lower()
        dtype = _COORDINATES.get(tensor)
        if dtype is not None:
            shape = call.inputs.rows, call.inputs.row_bytes[tensor] // dtype.itemsize
            opening.files.add(tensor=tensor, path=self._scratch.write(
                name, _blocks(call.inputs, tensor, _header(dtype, shape))))
            return
        array = call.arrays[tensor]
        file = opening.files.add(tensor=tensor,
                                 path=self._scratch.write(name, _blocks(call.inputs, tensor)))
        file.raw.shape.extend(array.shape if hasattr(array, "shape") else memoryview(array).shape)
        file.raw.dtype = call.dtypes[tensor]

    def take(self, handed: JobCall) -> JobCall:
        """The job that is done, with outputs that need no scratch file any more.

        Raises:
            HilbertRingError: an output is not there.
        """
        assert self._scratch is not None
        outputs = dict(handed.outputs)
        files = dict(handed.files)
        for tensor, name in self._outputs.items():
            output = files.pop(tensor)
            try:
                data = self._scratch.take(name, output.nbytes)
            except NoScratch as why:
                raise HilbertRingError(f"output handed over in memory: {why}") from None
            over = None if isinstance(output, FileOutput) else output.over
            if over is not None:
                outputs[tensor] = over(data)
            else:
                output.bytes.reshape(-1)[:] = data
                outputs[tensor] = output
        return replace(handed, outputs=outputs, files=files)

    def stop(self) -> None:
        """`name` ends soon, with None."""
        self._stopped = True
        if self._scratch is not None:
            self._scratch.stop()

    def close(self) -> None:
        """Removes the scratch files. May be called again."""
        if self._scratch is not None:
            self._scratch.close()


def _blocks(inputs: Inputs, tensor: Any, header: bytes = b"") -> Iterator[memoryview]:
    yield memoryview(header)
    rows = max(1, _BLOCK_BYTES // inputs.row_bytes[tensor])
    for first in range(0, inputs.rows, rows):
        yield inputs.readers[tensor](first, min(rows, inputs.rows - first))


def _header(dtype: "np.dtype[Any]", shape: Tuple[int, ...]) -> bytes:
    """Of a .npy file."""
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(made, {"descr": dtype.str, "fortran_order": False,
                                                "shape": shape})
    return made.getvalue()
