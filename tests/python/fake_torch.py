"""A stand-in of PyTorch with two GPUs, whose kernels run only when a thread waits for them.

    torch = FakeTorch()
    with torch.cuda.stream(torch.cuda.Stream(1)) as stream:
        q = torch.on_gpu(values, 1)   # zeros; a kernel of the current stream writes them
    q.cpu()                           # the values after the current stream of this thread has run
"""
import contextlib
import threading
import types
from dataclasses import dataclass

import numpy as np

_lock = threading.RLock()  # guards all kernels


@dataclass(frozen=True)
class Device:
    type: str
    index: int = 0


class Event:
    def __init__(self, stream):
        self.stream, self.kernels = stream, len(stream.kernels)
        self.waited = False

    def synchronize(self):
        self.waited = True
        self.stream.run(self.kernels)


class Stream:
    def __init__(self, device=0):
        self.device = device
        self.kernels, self.done = [], 0
        self.events = []

    def run(self, count=None):
        with _lock:
            count = len(self.kernels) if count is None else count
            while self.done < count:
                self.kernels[self.done]()
                self.done += 1

    def record_event(self):
        self.events.append(Event(self))
        return self.events[-1]


class Cuda:
    Stream = Stream

    def __init__(self):
        self._threads = threading.local()
        self._defaults = [Stream(0), Stream(1)]

    def is_initialized(self):
        return True

    def device_count(self):
        return 2

    def current_device(self):
        return getattr(self._threads, "device", 0)

    def _current(self):
        if not hasattr(self._threads, "streams"):
            self._threads.streams = list(self._defaults)
        return self._threads.streams

    def default_stream(self, device):
        return self._defaults[device]

    @contextlib.contextmanager
    def device(self, device):
        before, self._threads.device = self.current_device(), device
        try:
            yield
        finally:
            self._threads.device = before

    def current_stream(self, device):
        return self._current()[getattr(device, "index", device)]

    @contextlib.contextmanager
    def stream(self, stream):
        before, device = self._current()[stream.device], self.current_device()
        self._current()[stream.device], self._threads.device = stream, stream.device
        try:
            yield stream
        finally:
            self._current()[stream.device], self._threads.device = before, device


class Dtype(str):
    pass


class FakeTorch(types.ModuleType):
    def __init__(self):
        super().__init__("torch")
        self.cuda = Cuda()
        self.float32, self.int32, self.int16 = Dtype("torch.float32"), Dtype("torch.int32"), Dtype("torch.int16")
        self.bool, self.compiler = Dtype("torch.bool"), types.SimpleNamespace(is_compiling=lambda: False)
        self.placed = []  # (device, its current stream) of each tensor that was moved to one
        torch = self

        class Tensor:
            requires_grad = False

            def __init__(self, array, device=Device("cpu")):
                self.array, self.device, self.shape, self.ndim = array, device, array.shape, array.ndim
                self.dtype = torch.float32 if array.dtype == np.float32 else torch.int32

            def detach(self):
                return self

            def element_size(self):
                return self.array.itemsize

            def view(self, dtype):
                return Tensor(self.array.view("i4"), self.device)

            def __getitem__(self, rows):
                return Tensor(self.array[rows], self.device)

            def cpu(self):
                if self.device.type == "cpu":
                    return self
                torch.cuda.current_stream(self.device).run()
                with _lock:
                    return Tensor(self.array.copy())

            def reshape(self, shape):
                return Tensor(self.array.reshape(shape), self.device)

            def numpy(self):
                assert self.device.type == "cpu"
                return self.array

            def to(self, device):
                torch.placed.append((device, torch.cuda.current_stream(device)))
                return Tensor(self.array.copy(), device)

        self.Tensor = Tensor

    def is_grad_enabled(self):
        return True

    def tensor(self, values):
        return self.Tensor(np.array(values))

    def empty(self, shape, dtype):
        return self.Tensor(np.empty(shape, np.float32))

    def frombuffer(self, data, dtype):
        return self.Tensor(np.frombuffer(data, np.float32))

    def on_gpu(self, values, index):
        array = np.zeros_like(values)
        self.cuda.current_stream(index).kernels.append(lambda: array.__setitem__(..., values))
        return self.Tensor(array, Device("cuda", index))

    def from_dlpack(self, exported):
        """Makes the current stream wait for the exporting library's."""
        exported.__dlpack__(stream=self.cuda.current_stream(exported.__dlpack_device__()[1]))
        return exported.tensor
