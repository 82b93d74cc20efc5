"""The asyncio client, with the calls of hilbert_ring.Client.

    client = hilbert_ring.aio.connect("localhost:8001")
    async with client:
        result = await client.attend(q, k, v, segments=[4096])

Cancelling a task that awaits a call ends its job. All calls must be made in the event loop of the first call. Threads
of the loop's executor read rows. The blocks of a stream may be an asynchronous iterator; its results are one.

client.py runs these coroutines for the blocking client.
"""
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import (Any, AsyncIterator, Callable, Dict, FrozenSet, Iterable, List, Optional, Sequence, Tuple, Type,
                    TypeVar, Union)

from google.protobuf.message import Message

from hilbert_ring._by_reference import ASK_SECONDS, Naming, naming_of, warn_of_sending
from hilbert_ring._carrier import carry
from hilbert_ring._channel import (ENCODER_SERVICE, SERVICE, SHORT_CALL_SECONDS, Address, Pem,
                                   address_of, closed_error)
from hilbert_ring._connection import AnyConnection
from hilbert_ring._connection_aio import AioConnection
from hilbert_ring._conversation import JobCall, JobConversation, Progress, ProgressReporter
from hilbert_ring._distinct import check_distinct
from hilbert_ring._encode import EncodeResult, Layers, Wanted, encoded, model_request, prepare_encode, prepare_plan
from hilbert_ring._files import PathLike, checked_path
from hilbert_ring._job import (AttendOptions, AttendResult, ProgressOption, cancel_request, curve_request, pattern_of,
                               prepare, result_of, with_curve)
from hilbert_ring._many import ManyCall, ManyResult, SmallJob
from hilbert_ring._progress import shown
from hilbert_ring._retry import Retries, is_reachable, is_plan_pushed_back
from hilbert_ring._spec import Window, integer, make_spec
from hilbert_ring._stream import Blocks, StreamedBlock, StreamState, prepare_stream, run_stream
from hilbert_ring._torch_streams import CallerStreams, with_streams_of_call
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.ordering import Ordering
from hilbert_ring.v1 import attention_pb2 as pb
from hilbert_ring.v1 import encoder_pb2 as encoder_pb

__all__ = ["Client", "connect"]

T = TypeVar("T", bound=Message)

# Codes of errors that an old version of a model may cause.
_OF_OLD_MODEL = {"INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION"}


def connect(
        server: Optional[str] = None, *, token: Optional[str] = None, token_file: Optional[PathLike] = None,
        tls: Optional[bool] = None, ca: Optional[Pem] = None, cert: Optional[Pem] = None, key: Optional[Pem] = None,
        server_name: Optional[str] = None, insecure: bool = False, data_root: Optional[PathLike] = None,
        keepalive_interval: Optional[float] = None) -> "Client":
    """Returns a client of the service at `server`. The first call makes the connection.

    Args:
        server: "host:port" or "[IPv6]:port"; None: HILBERT_RING_SERVER, or localhost:8001.
        token: the caller's bearer token.
        token_file: a file with the token. Each call reads it, so that it can be replaced.
        tls: whether to encrypt; None: if one of the next four is given.
        ca: certificates of the authorities that may sign the service's: the path of a PEM file, or its bytes; None:
            the system's.
        cert, key: the caller's own certificate and key in the same forms, if the service requires them.
        server_name: name in the service's certificate; None: the server's host.
        insecure: whether a token may go to another host without TLS.
        data_root: path of the service's data root on this machine; None: the service's own path.
        keepalive_interval: seconds of silence after which an open call pings the service, 10 to 86400; None: 10, or
            330 for a stream without end.

    Raises:
        InvalidArgumentError: the server is no address, arguments contradict each other, a file cannot be read, a token
            is no header or would go to another host in clear text.
    """
    return Client(address_of(server, token=token, token_file=token_file, tls=tls, ca=ca, cert=cert, key=key,
                             server_name=server_name, insecure=insecure, keepalive_interval=keepalive_interval),
                  data_root)


class AttendStream:
    """The asyncio variant of hilbert_ring.AttendStream, with `async for`, `aclose` and `async with`."""

    def __init__(self, results: AsyncIterator[StreamedBlock], state: StreamState) -> None:
        self._results = results
        self._state = state

    @property
    def report(self) -> Optional[pb.Report]:
        return self._state.report

    @property
    def epoch(self) -> Optional[pb.Epoch]:
        return self._state.epoch

    def __aiter__(self) -> "AttendStream":
        return self

    async def __anext__(self) -> StreamedBlock:
        return await self._results.__anext__()

    async def aclose(self) -> None:
        """Ends the stream before its end."""
        await self._results.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> "AttendStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Client:
    """A connection to a service, bound to one event loop; `close` or an `async with` block ends it."""

    def __init__(self, address: Address, data_root: Optional[PathLike] = None,
                 kind: Type[AnyConnection] = AioConnection) -> None:
        self.server = address.server
        self._address = address
        self._data_root = None if data_root is None else Path(checked_path("data_root", data_root))
        self._connection = kind(address)
        self._models: Dict[str, encoder_pb.Model] = {}  # of jobs that succeeded, by name; the service checks digests

    def __reduce__(self) -> Any:
        """Pickles the client's arguments: another process makes its own connection."""
        return partial(connect, **self.pickled()), ()

    def pickled(self) -> Dict[str, Any]:
        return {**self._address.pickled(), "data_root": self._data_root}

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection. Current and later calls raise CancelledError."""
        await self._connection.close()

    @with_streams_of_call
    async def attend(
            self, q: Any, k: Any, v: Any, *, segments: Sequence[int], dilations: Optional[Sequence[int]] = None,
            mixing: str = "head_groups", causal: bool = False, scale: Optional[float] = None, tail: str = "mask",
            average_groups: bool = True, ordering: Optional[Ordering] = None,
            sequence_lengths: Optional[Sequence[int]] = None, key_sequence_lengths: Optional[Sequence[int]] = None,
            align: str = "end", window: Optional[Window] = None, softcap: Optional[float] = None, alibi: Any = None,
            sinks: Any = None, bias_coords: Any = None, dtype: Optional[str] = None, lse: Any = None, out: Any = None,
            by_reference: str = "auto", job_id: Optional[str] = None, deadline: Optional[float] = None,
            outage_timeout: Optional[float] = None, max_attempts: int = 10, chunk_bytes: int = 4 << 20,
            progress: ProgressOption = None) -> AttendResult:
        """Computes attention and returns after all rows have come.

        q, k and v are NumPy arrays (also memory maps), paths of .npy files, PyTorch tensors, objects with DLPack or
        the buffer protocol, or objects that are read by slices, such as h5py datasets. The client reads rows as it
        sends them, and again if the service requests them, so they must not change during the call. It copies no input
        as a whole. Ctrl-C ends the job.

        If all inputs are memory maps or paths, outputs are paths, and the service sees these files beneath its data
        root, the job passes them by path and sends no row.

        Args:
            q: queries [tokens, heads, head_dim]: float32, float16 or bfloat16.
            k: keys [key_tokens, kv_heads, head_dim]; kv_heads divides heads. There may be fewer or more of them than queries,
                or none.
            v: values [key_tokens, kv_heads, value_dim].
            segments: tokens of a segment, for each branch. Each segment attends to itself.
            dilations: step between the rows of a segment that a head selects, for each branch; None: 1.
            mixing: "head_groups": heads are split among the branches; "lse": every head runs every branch.
            causal: whether a query sees only keys of its own and earlier positions.
            scale: factor of the scores; None: 1 / sqrt(head_dim).
            tail: "mask": a short segment sees its own keys; "zero": zero keys fill it up.
            average_groups: with "head_groups": whether outputs are divided by the number of branches.
            ordering: Hilbert(...), Morton(...) or Auto(...), which selects a curve; None: the given order of tokens.
            sequence_lengths: queries of packed sequences, also 0; None: one sequence.
            key_sequence_lengths: keys of these sequences, also 0; None: as many as queries.
            align: position of query i of a sequence of n queries and m keys. "end": i + m - n, so that fewer queries
                are the last rows; "start": i.
            window: (left, right): a query sees keys of at most `left` earlier and `right` later tokens; None as a
                side: no bound.
            softcap: c: a score s becomes c * tanh(s / c); None: no cap.
            alibi: a slope for each head, in a list or array, or {"slopes": [...], "distance": "tokens"}: a score loses
                the slope times the distance of query and key. Distances are "tokens", or "coords" with bias_coords.
            sinks: a logit for each head, in a list or array. It takes part in the softmax of each row, with a value
                of 0.
            bias_coords: float32 [key_tokens, 2] or [key_tokens, 3], an array or the path of one: coordinates of the
                positions of keys, whose Euclidean distance alibi measures. NaN: no bias to and from that position. A
                query has the coordinates of its position.
            dtype: "bfloat16" if numbers are its raw 16 bits.
            lse: True, False, an array float32 [tokens, heads] to write to, or a path; None: True, or False if `out` is
                a path.
            out: an array [tokens, heads, value_dim] to write to, such as a memory map, or the path of a .npy file,
                which is replaced after all rows have come; None: a new array.
            by_reference: "auto": pass tensors by path if client and service see the same files, else send them;
                "always": raise an error instead of sending; "never": send.
            job_id: the job's name; None: a random name.
            deadline: seconds for the whole call with all attempts.
            outage_timeout: seconds of one outage of the service; None: until the deadline, or 30 without a deadline.
            max_attempts: attempts if the service is busy or loses the job. Attempts that find the service away do not
                count. With a deadline, attempts that find it full do not count either. 1: a failure is final.
            chunk_bytes: most bytes of rows in one message; the service takes up to 4 MiB less 64 KiB.
            progress: True: show a bar; False: no bar; a function: called with each Progress, by one thread at a time;
                None: show a bar in a terminal or notebook if tqdm is installed.

        Returns:
            out, lse and report. Given `out` and `lse` are returned themselves.

        Raises:
            InvalidArgumentError, OutOfRangeError: an argument is wrong; `field` names it.
            HilbertRingError: a subclass for each status of the service.
        """
        options = AttendOptions(job_id, deadline, outage_timeout, max_attempts, chunk_bytes, progress, by_reference)
        pattern = pattern_of(segments, dilations, mixing, causal, scale, tail, average_groups, sequence_lengths,
                             key_sequence_lengths, align, window, softcap, alibi, sinks, bias_coords)
        check_distinct(self._address.files, {"out": out, "lse": lse})
        call = prepare(q, k, v, dtype=dtype, lse=lse, out=out, options=options, ordering=ordering, pattern=pattern)
        retries = options.retries()
        request, why = curve_request(call), ""
        if request is not None:
            plan = await self._ask("Plan", request, pb.PlanResponse, retries)
            call, why = with_curve(call, plan), plan.curve_why
        with shown(progress) as show, closing(call):
            call, report = await self._run_job(call, retries, show)
            return result_of(call, report, ordering, why)

    def attend_stream(
            self, blocks: Blocks, *, segments: Sequence[int], dilations: Optional[Sequence[int]] = None,
            mixing: str = "head_groups", causal: bool = False, scale: Optional[float] = None, tail: str = "mask",
            average_groups: bool = True, ordering: Optional[Ordering] = None,
            sequence_lengths: Optional[Sequence[int]] = None, window: Optional[Window] = None,
            softcap: Optional[float] = None, alibi: Any = None, sinks: Any = None, dtype: Optional[str] = None,
            lse: bool = False, epoch_tokens: Optional[int] = None, job_id: Optional[str] = None,
            deadline: Optional[float] = None, outage_timeout: Optional[float] = None, max_attempts: int = 10,
            chunk_bytes: int = 1 << 20) -> AttendStream:
        """Computes attention over rows without end, from an iterator of blocks to an iterator of results.

        The service computes epoch by epoch in memory of a fixed size. A block's results come after the epoch of its
        last row. The client does not retry a stream that the service has admitted: results that came are final.

        Args:
            blocks: (q, k, v) of the next rows, in the forms of `attend`, all of the same type and shape apart from
                rows. Another thread runs the iterator.
            sequence_lengths: tokens of packed sequences, which repeat; None: one sequence.
            ordering: with a window, or of packed sequences; not Auto, a grid or coordinates.
            lse: whether results include it.
            epoch_tokens: tokens of an epoch, a multiple of all segments and of the ordering's window; None: the most
                that the service takes.
            others: see `attend`.

        Returns:
            an iterator of results (out, lse, first_token), one for each block, with the report at its end.

        Raises:
            InvalidArgumentError, OutOfRangeError: an option from job_id on is wrong. The iterator raises other errors.
        """
        options = AttendOptions(job_id, deadline, outage_timeout, max_attempts, chunk_bytes)
        pattern = pattern_of(segments, dilations, mixing, causal, scale, tail, average_groups, sequence_lengths, None,
                             "end", window, softcap, alibi, sinks)
        state, streams = StreamState(), CallerStreams()
        prepared = partial(prepare_stream, dtype=dtype, lse=lse, epoch_tokens=epoch_tokens, options=options,
                           ordering=ordering, pattern=pattern, streams=streams)
        return AttendStream(run_stream(self._connection, blocks, streams, prepared, state), state)

    @with_streams_of_call
    async def attend_many(
            self, jobs: Iterable[SmallJob], *, deadline: Optional[float] = None,
            outage_timeout: Optional[float] = None, max_attempts: int = 10, chunk_bytes: int = 4 << 20,
            **common: Any) -> List[ManyResult]:
        """Computes many independent small jobs in few calls. A wrong job fails alone.

        Jobs with the same arguments apart from tokens and keys are computed together. Up to four calls run at the same
        time, if the service has room.

        Args:
            jobs: each (q, k, v), or a dict of arguments of `attend`: q, k, v, and others of its own. A job's rows and
                its outputs must each take less than 4 MiB.
            chunk_bytes: most bytes of rows in one message. Jobs of up to four messages are computed together.
            common: default arguments of `attend` for jobs, such as segments; not paths as outputs, not Auto(...). The
                default of lse is True.

        Returns:
            for each job, in the same order, its result or a HilbertRingError, which is not raised. A report's figures
            except tokens cover all jobs that were computed together.

        Raises:
            InvalidArgumentError, OutOfRangeError: an argument of the call is wrong.
        """
        options = AttendOptions(None, deadline, outage_timeout, max_attempts, chunk_bytes)
        call = ManyCall(list(jobs), options, common)
        await self._connection.side_by_side(call.lanes, partial(self._run_packs, call))
        return call.ended()

    async def _run_packs(self, call: ManyCall) -> None:
        try:
            while (pack := await self._connection.in_thread(call.next)) is not None:
                try:
                    call.done(pack, *await self._run_job(pack.call, call.retries(), None, pack.final))
                except HilbertRingError as error:
                    if not call.failed(pack, error):
                        return
        except BaseException:
            call.stop(closed_error())
            raise

    @with_streams_of_call
    async def encode(
            self, tiles: Any = None, coords: Any = None, *, model: str, slide: Any = None, pool: Optional[str] = None,
            layers: Layers = "last", final_norm: Optional[bool] = None, compute: str = "float32",
            sequence_lengths: Optional[Sequence[int]] = None, attention_map: Union[bool, int] = False,
            attention_map_heads: bool = False, attention_map_out: Any = None, dtype: Optional[str] = None,
            out: Any = None, by_reference: str = "auto", job_id: Optional[str] = None,
            deadline: Optional[float] = None, outage_timeout: Optional[float] = None, max_attempts: int = 10,
            chunk_bytes: int = 4 << 20, progress: ProgressOption = None) -> EncodeResult:
        """Computes embeddings of slides: the workers run tiles through all layers of a model.

        tiles may have any form that `attend` takes for q.

        Args:
            tiles: [tiles, tile_dim]: float32, float16 or bfloat16.
            coords: [tiles, 2], x and y of each tile in pixels, if the model has positions; float64 if passed by path.
            model: a name from `models`.
            slide: in place of tiles and coords, a slide pipeline's file in a form of read_slide: a path, or a
                SlideFile with more arguments.
            pool: "class": the class token's vector of each slide; "mean": the mean of its tiles; "none": every row;
                None: "class" if the model has a class token.
            layers: "last"; "all": from the first layer's input (0) on; or numbers in the order of the result, which
                may repeat.
            final_norm: whether outputs pass the norm after the model's last layer; None: if only the last layer is
                wanted, like published slide encoders.
            compute: "float32" or "bfloat16", type of products and attention.
            sequence_lengths: tiles of each slide, in order; None: one slide.
            attention_map: a layer, or True for the last: the share of the attention of its slide's class token that
                each row gets.
            attention_map_heads: whether the map has a column for each head.
            attention_map_out: an array float32 to write the map to, or a path; None: a new array.
            dtype: "bfloat16" if numbers are its raw 16 bits.
            out: an array float32 to write the embeddings to, or a path; None: a new array. The service always sends
                pooled embeddings, also if other tensors are passed by path.
            others: see `attend`.

        Returns:
            embeddings, attention_map and report.

        Raises:
            InvalidArgumentError, OutOfRangeError: an argument is wrong; `field` names it.
            NotFoundError: the service has no model of the name.
            HilbertRingError: a subclass for each status of the service.
        """
        options = AttendOptions(job_id, deadline, outage_timeout, max_attempts, chunk_bytes, progress, by_reference)
        wanted = Wanted(pool, layers, final_norm, compute, sequence_lengths, attention_map, attention_map_heads,
                        attention_map_out)
        retries = options.retries()
        check_distinct(self._address.files, {"out": out, "attention_map_out": attention_map_out})
        known = self._models.get(model) if isinstance(model, str) else None
        while True:
            found = known or await self._model_of(model, retries)
            try:
                # In a thread, because it reads and checks files.
                call = await self._connection.in_thread(prepare_encode, found, tiles, coords, slide=slide, dtype=dtype,
                                                        out=out, wanted=wanted, options=options)
                with shown(progress) as show, closing(call):
                    call, report = await self._run_job(call, retries, show)
                    self._models[model] = found
                    return encoded(call, report)
            except HilbertRingError as error:
                self._models.pop(model, None)
                if known is None or error.code not in _OF_OLD_MODEL:
                    raise
                known = None

    async def plan_encode(
            self, tiles: int, *, model: str, pool: Optional[str] = None, layers: Layers = "last",
            final_norm: Optional[bool] = None, compute: str = "float32",
            sequence_lengths: Optional[Sequence[int]] = None, attention_map: Union[bool, int] = False,
            attention_map_heads: bool = False, dtype: str = "float32", workers: int = 0,
            deadline: float = SHORT_CALL_SECONDS) -> pb.PlanResponse:
        """Plans the compute, memory, bytes and seconds of an encoder's job, without running it.

        Args:
            tiles: number of tiles of all slides.
            workers: number of workers that share the job; 0: all that have the model now.
            deadline: seconds, including the wait for a service that is busy with other plans.
            others: see `encode`.

        Returns:
            message PlanResponse of proto/hilbert_ring/v1/attention.proto, which covers all layers.
        """
        wanted = Wanted(pool, layers, final_norm, compute, sequence_lengths, attention_map, attention_map_heads)
        retries = AttendOptions(max_attempts=1000, deadline=deadline).retries()
        found = await self._model_of(model, retries)
        request = prepare_plan(found, tiles, dtype=dtype, wanted=wanted, workers=workers)
        return await self._planned("PlanEncode", request, retries, ENCODER_SERVICE)

    async def models(self) -> List[encoder_pb.Model]:
        """Returns the service's models of encoders, by name (message Model)."""
        response = await self._connection.short(
            "ListModels", encoder_pb.ListModelsRequest(), encoder_pb.ListModelsResponse, service=ENCODER_SERVICE)
        return list(response.models)

    async def model(self, name: str) -> encoder_pb.Model:
        """Returns a model; raises NotFoundError if the service has no model of this name."""
        return await self._connection.short("GetModel", model_request(name), encoder_pb.Model, service=ENCODER_SERVICE)

    async def _model_of(self, name: str, retries: Retries) -> encoder_pb.Model:
        return await self._ask("GetModel", model_request(name), encoder_pb.Model, retries, ENCODER_SERVICE)

    async def _run_job(
            self, call: JobCall, retries: Retries,
            show: Optional[Callable[[Progress], None]], final: FrozenSet[str] = frozenset()) -> Tuple[JobCall, pb.Report]:
        """Runs a job by reference if possible, and returns the job that was done, with its report.

        Args:
            final: reasons of a failure without another attempt.
        """
        naming = naming_of(call)
        if naming is not None:
            with closing(naming):
                named = await self._named(call, naming, retries)
                if named is not None:
                    try:
                        report = await self._run(named, retries, show, naming.may_send | final)
                        return await self._connection.to_its_end(naming.stop, naming.take, named), report
                    except HilbertRingError as error:
                        warn_of_sending(error, naming.may_send)
        return call, await self._run(call, retries, show, final)

    async def _named(self, call: JobCall, naming: Naming, retries: Retries) -> Optional[JobCall]:
        """Returns the job with its tensors passed by path; None: they must be sent."""
        try:
            if naming.in_files:
                root = await self._ask("GetDataRoot", pb.GetDataRootRequest(), pb.GetDataRootResponse, retries)
            else:  # the job's call reports the same failure if it matters
                root = await self._connection.short(
                    "GetDataRoot", pb.GetDataRootRequest(), pb.GetDataRootResponse, ASK_SECONDS)
        except HilbertRingError:
            if call.by_reference == "always":
                raise
            return None
        return await self._connection.to_its_end(naming.stop, naming.name, root, self._data_root)

    async def _run(
            self, call: JobCall, retries: Retries, show: Optional[Callable[[Progress], None]],
            final: FrozenSet[str] = frozenset()) -> pb.Report:
        await self._connection.to_its_end(lambda: None, call.make_room)
        progress = ProgressReporter(show, call.progress(0))

        def failed(error: HilbertRingError, wait: float) -> None:
            nonlocal progress
            progress = ProgressReporter(show, call.progress(progress.attempt + 1, error, wait))
            progress.update()

        return await self._connection.call_with_retries(
            retries, lambda seconds: carry(self._connection, JobConversation(call, progress), seconds),
            lambda failure: failure.error.reason in final, failed)

    async def _ask(self, name: str, request: Any, response: Type[T], retries: Retries, service: str = SERVICE) -> T:
        """Makes a short call for a job, and waits for a service that is away like the job's call does."""
        def ask(seconds: Optional[float]) -> Any:
            longest = SHORT_CALL_SECONDS if seconds is None else min(seconds, SHORT_CALL_SECONDS)
            return self._connection.ask(name, request, response, longest, service)

        answer: T = await self._connection.call_with_retries(
            retries, ask, lambda failure: is_reachable(failure) and not is_plan_pushed_back(name, failure))
        return answer

    async def _planned(self, name: str, request: Any, retries: Retries, service: str = SERVICE) -> pb.PlanResponse:
        """Requests a plan, and waits for a service that is busy with other plans."""
        return await self._connection.call_with_retries(
            retries, lambda seconds: self._connection.ask(name, request, pb.PlanResponse, seconds, service),
            lambda failure: not is_plan_pushed_back(name, failure))

    async def plan(
            self, *, tokens: int, heads: int, head_dim: int, segments: Sequence[int], key_tokens: Optional[int] = None,
            dilations: Optional[Sequence[int]] = None, kv_heads: Optional[int] = None, value_dim: Optional[int] = None,
            dtype: str = "float32", mixing: str = "head_groups", causal: bool = False, scale: Optional[float] = None,
            tail: str = "mask", average_groups: bool = True, ordering: Optional[Ordering] = None,
            sequence_lengths: Optional[Sequence[int]] = None, key_sequence_lengths: Optional[Sequence[int]] = None,
            align: str = "end", window: Optional[Window] = None, softcap: Optional[float] = None, alibi: Any = None,
            sinks: Any = None, bias_coords: Any = None, workers: int = 0, deadline: float = SHORT_CALL_SECONDS) -> pb.PlanResponse:
        """Plans the compute, memory, bytes and seconds of a job, without running it.

        Args:
            key_tokens: number of keys; None: as many as queries.
            workers: number of workers that share the job; 0: all of the service's.
            deadline: seconds, including the wait for a service that is busy with other plans.
            others: see `attend`. kv_heads: None: heads. value_dim: None: head_dim. alibi may have "axes", 2 or 3, instead
                of bias_coords.

        Returns:
            message PlanResponse of proto/hilbert_ring/v1/attention.proto. With another number of keys, it has
            `travels`, what travels between workers, and `travels_why`.
        """
        pattern = pattern_of(segments, dilations, mixing, causal, scale, tail, average_groups, sequence_lengths,
                             key_sequence_lengths, align, window, softcap, alibi, sinks, bias_coords)
        spec = make_spec(tokens=tokens, heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_dim=value_dim,
                         dtype=dtype, ordering=ordering, key_tokens=key_tokens, **pattern)
        request = pb.PlanRequest(spec=spec, workers=integer("workers", workers, 32))
        retries = AttendOptions(max_attempts=1000, deadline=deadline).retries()
        return await self._planned("Plan", request, retries)

    async def jobs(self) -> List[pb.Job]:
        """Returns the caller's jobs that wait or run, by job id (message Job)."""
        response = await self._connection.short("ListJobs", pb.ListJobsRequest(), pb.ListJobsResponse)
        return list(response.jobs)

    async def cancel(self, job_id: str, caller: Optional[str] = None) -> None:
        """Ends a job, whose `attend` then raises CancelledError.

        Args:
            job_id: an id from `jobs`.
            caller: the caller whose job an administrator cancels; None: the client's own caller.

        Raises:
            NotFoundError: no such job waits or runs.
            PermissionDeniedError: the job is another caller's.
        """
        await self._connection.short("CancelJob", cancel_request(job_id, caller), pb.CancelJobResponse)

    async def status(self) -> pb.GetClusterResponse:
        """Returns the current workers, their memory, and rings (message GetClusterResponse)."""
        return await self._connection.short("GetCluster", pb.GetClusterRequest(), pb.GetClusterResponse)
