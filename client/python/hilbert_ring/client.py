# Made of aio.py by tools/unasync.py.
"""The blocking client."""
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Callable, FrozenSet, Iterable, List, Optional, Sequence, Tuple, Type, TypeVar, Union

from google.protobuf.message import Message

from hilbert_ring._by_reference import ASK_SECONDS, Naming, naming_of, warn_of_sending
from hilbert_ring._carrier_blocking import carry
from hilbert_ring._channel import (ENCODER_SERVICE, SERVICE, SHORT_CALL_SECONDS, Address, PathLike, Pem,
                                   address_of, closed_error)
from hilbert_ring._connection import Connection
from hilbert_ring._conversation import JobCall, JobConversations, Progress
from hilbert_ring._distinct import check_shown
from hilbert_ring._encode import EncodeResult, Layers, Wanted, encoded, prepare_encode, prepare_plan
from hilbert_ring._files import checked_path
from hilbert_ring._job import (AttendOptions, AttendResult, ProgressOption, cancel_request, curve_request, pattern_of,
                               prepare, result_of, with_curve)
from hilbert_ring._many import ManyCall, ManyResult, SmallJob
from hilbert_ring._model import model_request
from hilbert_ring._progress import shown
from hilbert_ring._retry import Retries, is_reachable, is_plan_pushed_back
from hilbert_ring._spec import integer, make_spec
from hilbert_ring._stream import StreamState, prepare_stream
from hilbert_ring._stream_blocking import AttendStream, Blocks, run_stream
from hilbert_ring._threads_blocking import in_thread, side_by_side, to_its_end, with_streams_of_call
from hilbert_ring._torch_streams import CallerStreams
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.ordering import Ordering
from hilbert_ring.v1 import attention_pb2 as pb
from hilbert_ring.v1 import encoder_pb2 as encoder_pb

__all__ = ["Client", "connect"]

T = TypeVar("T", bound=Message)


def connect(
        server: Optional[str] = None, *, token: Optional[str] = None, token_file: Optional[PathLike] = None,
        tls: Optional[bool] = None, ca: Optional[Pem] = None, cert: Optional[Pem] = None, key: Optional[Pem] = None,
        server_name: Optional[str] = None, insecure: bool = False, data_root: Optional[PathLike] = None,
        keepalive_interval: Optional[float] = None) -> "Client":
    """A client of the service at `server`; the connection is made with the first call.

    Args:
        server: "host:port" or "[IPv6]:port". HILBERT_RING_SERVER when it is None, or localhost:8001.
        token: the caller's bearer token.
        token_file: a file with it, which is read with each call, so that it can be replaced.
        tls: whether to encrypt. None: where any of the next four is given.
        ca: the certificates that the service's must be signed by: a path of a PEM file, or its bytes. None: the
            system's.
        cert, key: the caller's own certificate and key, likewise, where the service asks for them.
        server_name: in the service's certificate; None: the server's host.
        insecure: a token may go to another host without TLS.
        data_root: where this machine sees the service's data root; None: where the service does.
        keepalive_interval: seconds of silence after which the service of an open call is pinged, 10 to 86400. None: 10,
            of a stream without end 330.

    Raises:
        InvalidArgumentError: a server that is no address, arguments that contradict each other, a file that cannot be
            read, a token that is no header or would go to another host in the clear.
    """
    return Client(address_of(server, token=token, token_file=token_file, tls=tls, ca=ca, cert=cert, key=key,
                             server_name=server_name, insecure=insecure, keepalive_interval=keepalive_interval),
                  data_root)


class Client:
    """A connection to a service. Thread-safe; ends with `close` or a `with` block."""

    def __init__(self, address: Address, data_root: Optional[PathLike] = None) -> None:
        self.server = address.server
        self._address = address
        self._shown = address.files
        self._data_root = None if data_root is None else Path(checked_path("data_root", data_root))
        self._connection = Connection(address)

    def __reduce__(self) -> Any:
        """The client's arguments: another process connects anew."""
        return partial(connect, **self._address.pickled(), data_root=self._data_root), ()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection. Calls that are under way, and later ones, raise CancelledError."""
        self._connection.close()

    @with_streams_of_call
    def attend(
            self, q: Any, k: Any, v: Any, *, segments: Sequence[int], dilations: Optional[Sequence[int]] = None,
            mixing: str = "head_groups", causal: bool = False, scale: Optional[float] = None, tail: str = "mask",
            average_groups: bool = True, ordering: Optional[Ordering] = None,
            sequence_lengths: Optional[Sequence[int]] = None, dtype: Optional[str] = None, lse: Any = None,
            out: Any = None, by_reference: str = "auto", job_id: Optional[str] = None,
            deadline: Optional[float] = None, outage_timeout: Optional[float] = None, max_attempts: int = 10,
            chunk_bytes: int = 4 << 20, progress: ProgressOption = None) -> AttendResult:
        """Computes attention, and returns when all rows are there.

        q, k and v are arrays of NumPy (memory maps too), paths of .npy files, tensors of PyTorch, anything that speaks
        DLPack or the buffer protocol, or what is read by slices, such as a dataset of h5py. None is copied as a whole:
        rows are read as they are sent, and again when the service asks for them, so they must not change meanwhile.
        Ctrl-C ends the job.

        Where all of them are memory maps or paths, outputs are paths, and the service sees these files too (beneath its
        data root), they are named, and no row is sent.

        Args:
            q: queries [tokens, heads, head_dim]: float32, float16 or bfloat16.
            k: keys [tokens, kv_heads, head_dim]; kv_heads divides heads.
            v: values [tokens, kv_heads, value_dim].
            segments: tokens; one a branch. Each segment of so many tokens attends to itself.
            dilations: one a branch: every so many-th row of a segment. None: 1.
            mixing: "head_groups": heads are split among the branches; "lse": every head runs every branch.
            causal: a query sees keys of its own and earlier tokens.
            scale: of the scores; None: 1 / sqrt(head_dim).
            tail: "mask": a short segment sees what exists; "zero": zero keys make up the number.
            average_groups: with "head_groups": outputs are divided by the number of branches.
            ordering: Hilbert(...), Morton(...) or Auto(...), which is the one that suits the job; None: as the tokens
                come.
            sequence_lengths: tokens of packed sequences; None: one sequence.
            dtype: "bfloat16", where numbers are its raw 16 bits.
            lse: True, False, or an array float32 [tokens, heads] to write to, or a path. None: True, but with a path as
                `out` False.
            out: an array [tokens, heads, value_dim] to write to, such as a memory map, or the path of a .npy file,
                which is replaced when all rows are there; None: a new array.
            by_reference: "auto": tensors are named where client and service see the same files, else they are sent;
                "always": an error where they would be sent; "never".
            job_id: the job's name; None: one is drawn.
            deadline: seconds for the whole call, all attempts together.
            outage_timeout: seconds that the service may be away at a stretch. None: until the deadline, or 30 without
                one.
            max_attempts: how often the job is sent when the service is busy or loses it. Attempts that find the service
                away do not count, nor, with a deadline, those that find it full. 1: a failure is final.
            chunk_bytes: of rows in one message, at most; the service takes up to 4 MiB less 64 KiB.
            progress: True: a bar; False: none; a function: called with each Progress, by one thread at a time. None: a
                bar where there is a terminal or a notebook, and tqdm.

        Returns:
            out, lse and report. With `out` or `lse` given, those.

        Raises:
            InvalidArgumentError, OutOfRangeError: an argument is wrong; `field` names it.
            HilbertRingError: a subclass for each status of the service.
        """
        options = AttendOptions(job_id, deadline, outage_timeout, max_attempts, chunk_bytes, progress, by_reference)
        pattern = pattern_of(segments, dilations, mixing, causal, scale, tail, average_groups, sequence_lengths)
        check_shown(self._shown, {"out": out, "lse": lse})
        call = prepare(q, k, v, dtype=dtype, lse=lse, out=out, options=options, ordering=ordering, pattern=pattern)
        retries = options.retries(self._connection.timing)
        request, why = curve_request(call), ""
        if request is not None:
            plan = self._ask("Plan", request, pb.PlanResponse, retries)
            call, why = with_curve(call, plan), plan.curve_why
        with shown(progress) as show, closing(call):
            call, report = self._run_job(call, retries, show)
            return result_of(call, report, ordering, why)

    def attend_stream(
            self, blocks: Blocks, *, segments: Sequence[int], dilations: Optional[Sequence[int]] = None,
            mixing: str = "head_groups", causal: bool = False, scale: Optional[float] = None, tail: str = "mask",
            average_groups: bool = True, ordering: Optional[Ordering] = None,
            sequence_lengths: Optional[Sequence[int]] = None, dtype: Optional[str] = None, lse: bool = False,
            epoch_tokens: Optional[int] = None, job_id: Optional[str] = None, deadline: Optional[float] = None,
            outage_timeout: Optional[float] = None, max_attempts: int = 10,
            chunk_bytes: int = 1 << 20) -> AttendStream:
        """Computes attention over rows without end: an iterator of blocks in, an iterator of results out.

        The service computes epoch by epoch, in memory of a fixed size; results of a block come when the epoch of its
        last row is done. A stream is not tried again once the service has taken it: results that came are final.

        Args:
            blocks: (q, k, v) of rows that follow those before; each as of `attend`, all alike but for their rows. Asked
                for by another thread.
            sequence_lengths: of packed sequences, which repeat; None: one sequence.
            ordering: with a window, or of packed sequences; neither Auto nor grids and coordinates.
            lse: whether results have it.
            epoch_tokens: of an epoch, a multiple of all segments and of the ordering's window; None: as many as the
                service takes.
            others: as of `attend`.

        Returns:
            an iterator of results (out, lse, first_token), one for each block, with the report at its
            end. Wrong options, from job_id on, are raised at once, other errors as it is iterated.
        """
        options = AttendOptions(job_id, deadline, outage_timeout, max_attempts, chunk_bytes)
        pattern = pattern_of(segments, dilations, mixing, causal, scale, tail, average_groups, sequence_lengths)
        state, streams = StreamState(), CallerStreams()
        prepared = partial(prepare_stream, dtype=dtype, lse=lse, epoch_tokens=epoch_tokens, options=options,
                           ordering=ordering, pattern=pattern, streams=streams)
        return AttendStream(run_stream(self._connection, blocks, streams, prepared, state), state)

    @with_streams_of_call
    def attend_many(
            self, jobs: Iterable[SmallJob], *, deadline: Optional[float] = None,
            outage_timeout: Optional[float] = None, max_attempts: int = 10, chunk_bytes: int = 1 << 20,
            **common: Any) -> List[ManyResult]:
        """Computes many small jobs in few calls, each for itself: one that is wrong fails alone.

        Those whose arguments are the same but for their tokens are computed together. Four calls run side by side, or
        as many as the service has room for.

        Args:
            jobs: each (q, k, v), or a dict of arguments of `attend`: q, k, v, and its own ones of the others. Rows of
                one, and its outputs, take less than 4 MiB each.
            chunk_bytes: of the jobs that are computed together, at most, too.
            common: arguments of `attend` for jobs that do not have their own: segments and so on; neither paths as
                outputs nor Auto(...). lse is True where it is not given.

        Returns:
            for each job, in their order, its result or a HilbertRingError, which is not raised. A
            report's figures but its tokens are those of all jobs that were computed together.

        Raises:
            InvalidArgumentError, OutOfRangeError: an argument of the call is wrong.
        """
        options = AttendOptions(None, deadline, outage_timeout, max_attempts, chunk_bytes)
        call = ManyCall(list(jobs), options, common, self._connection.timing)
        side_by_side(call.lanes, partial(self._run_packs, call))
        return call.ended()

    def _run_packs(self, call: ManyCall) -> None:
        """A lane: until no pack is left."""
        try:
            while (pack := in_thread(call.next)) is not None:
                try:
                    call.done(pack, self._run(pack.call, call.retries(), None, pack.final))
                except HilbertRingError as error:
                    if not call.failed(pack, error):
                        return
        except BaseException:
            call.stop(closed_error())
            raise

    @with_streams_of_call
    def encode(
            self, tiles: Any = None, coords: Any = None, *, model: str, slide: Any = None, pool: Optional[str] = None,
            layers: Layers = "last", final_norm: Optional[bool] = None, compute: str = "float32",
            sequence_lengths: Optional[Sequence[int]] = None, attention_map: Union[bool, int] = False,
            attention_map_heads: bool = False, attention_map_out: Any = None, dtype: Optional[str] = None,
            out: Any = None, by_reference: str = "auto", job_id: Optional[str] = None,
            deadline: Optional[float] = None, outage_timeout: Optional[float] = None, max_attempts: int = 10,
            chunk_bytes: int = 4 << 20, progress: ProgressOption = None) -> EncodeResult:
        """Embeddings of slides: tiles through all layers of a model, on the workers.

        tiles is read as `attend` reads q: anything that it takes, row by row as it is sent.

        Args:
            tiles: [tiles, tile_dim]: float32, float16 or bfloat16.
            coords: [tiles, 2], x and y of each tile in pixels, for models with positions; by reference float64.
            model: its name, of `models`.
            slide: in place of tiles and coords, a slide pipeline's file as read_slide reads it: a path, or a SlideFile
                that tells more about it.
            pool: "class": the class token's vector of each slide; "mean": the mean of its tiles; "none": every row.
                None: "class" where the model has a class token.
            layers: "last"; "all": from the first layer's input (0) on; or their numbers, in the order of the result; a
                number may repeat.
            final_norm: whether outputs pass the norm behind the model's last layer. None: where the last layer alone is
                wanted, as published slide encoders do.
            compute: "float32" or "bfloat16", of products and attention.
            sequence_lengths: tiles of each slide, which follow each other; None: one slide.
            attention_map: True, or a layer: what each row gets of the attention of its slide's class token; True: in
                the last layer.
            attention_map_heads: the map has a column for each head.
            attention_map_out: an array float32 to write it to, or a path; None: a new one.
            dtype: "bfloat16", where numbers are its raw 16 bits.
            out: an array float32 to write the embeddings to, or a path; None: a new one. By reference pooled ones still
                come as rows, whatever it is.
            others: as of `attend`.

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
        retries = options.retries(self._connection.timing)
        check_shown(self._shown, {"out": out, "attention_map_out": attention_map_out})
        found = self._model_of(model, retries)
        # Files are read, and looked through.
        call = in_thread(prepare_encode, found, tiles, coords, slide=slide, dtype=dtype, out=out,
                               wanted=wanted, options=options)
        with shown(progress) as show, closing(call):
            call, report = self._run_job(call, retries, show)
            return encoded(call, report)

    def plan_encode(
            self, tiles: int, *, model: str, pool: Optional[str] = None, layers: Layers = "last",
            final_norm: Optional[bool] = None, compute: str = "float32",
            sequence_lengths: Optional[Sequence[int]] = None, attention_map: Union[bool, int] = False,
            attention_map_heads: bool = False, dtype: str = "float32", workers: int = 0,
            deadline: float = SHORT_CALL_SECONDS) -> pb.PlanResponse:
        """What an encoder's job would take in compute, memory, bytes and seconds, without running it.

        Args:
            tiles: how many, of all slides together.
            workers: how many would share it; 0: as many as have the model now.
            deadline: seconds, waiting for a service that makes too many plans included.
            others: as of `encode`.

        Returns:
            message PlanResponse of proto/hilbert_ring/v1/attention.proto, of all layers.
        """
        wanted = Wanted(pool, layers, final_norm, compute, sequence_lengths, attention_map, attention_map_heads)
        retries = AttendOptions(max_attempts=1000, deadline=deadline).retries(self._connection.timing)
        found = self._model_of(model, retries)
        request = prepare_plan(found, tiles, dtype=dtype, wanted=wanted, workers=workers)
        return self._planned("PlanEncode", request, retries, ENCODER_SERVICE)

    def models(self) -> List[encoder_pb.Model]:
        """The models of encoders that the service has, by name (message Model)."""
        response = self._connection.short(
            "ListModels", encoder_pb.ListModelsRequest(), encoder_pb.ListModelsResponse, service=ENCODER_SERVICE)
        return list(response.models)

    def model(self, name: str) -> encoder_pb.Model:
        """One of them; raises NotFoundError where there is none of the name."""
        return self._connection.short("GetModel", model_request(name), encoder_pb.Model, service=ENCODER_SERVICE)

    def _model_of(self, name: str, retries: Retries) -> encoder_pb.Model:
        return self._ask("GetModel", model_request(name), encoder_pb.Model, retries, ENCODER_SERVICE)

    def _run_job(
            self, call: JobCall, retries: Retries,
            show: Optional[Callable[[Progress], None]]) -> Tuple[JobCall, pb.Report]:
        """Without sending its tensors where that can be: the job as it was done."""
        naming = naming_of(call)
        if naming is not None:
            with closing(naming):
                named = self._named(call, naming, retries)
                if named is not None:
                    try:
                        report = self._run(named, retries, show, naming.may_send)
                        return to_its_end(naming.stop, naming.take, named), report
                    except HilbertRingError as error:
                        warn_of_sending(error, naming.may_send)
        return call, self._run(call, retries, show)

    def _named(self, call: JobCall, naming: Naming, retries: Retries) -> Optional[JobCall]:
        """None: its tensors are to be sent."""
        try:
            if naming.in_files:
                root = self._ask("GetDataRoot", pb.GetDataRootRequest(), pb.GetDataRootResponse, retries)
            else:  # what fails here is told by the job's call, too, where it matters
                root = self._connection.short(
                    "GetDataRoot", pb.GetDataRootRequest(), pb.GetDataRootResponse, ASK_SECONDS)
        except HilbertRingError:
            if call.by_reference == "always":
                raise
            return None
        return to_its_end(naming.stop, naming.name, root, self._data_root)

    def _run(
            self, call: JobCall, retries: Retries, show: Optional[Callable[[Progress], None]],
            final: FrozenSet[str] = frozenset()) -> pb.Report:
        to_its_end(lambda: None, call.make_room)
        conversations = JobConversations(call, show)
        return self._connection.call_with_retries(
            retries, lambda seconds: carry(self._connection, conversations.begin(), seconds),
            lambda failure: failure.error.reason in final, conversations.failed)

    def _ask(self, name: str, request: Any, response: Type[T], retries: Retries, service: str = SERVICE) -> T:
        """A short call on behalf of a job: waits for a service that is away, as the job's call does."""
        def ask(seconds: Optional[float]) -> Any:
            longest = SHORT_CALL_SECONDS if seconds is None else min(seconds, SHORT_CALL_SECONDS)
            return self._connection.ask(name, request, response, longest, service)

        answer: T = self._connection.call_with_retries(
            retries, ask, lambda failure: is_reachable(failure) and not is_plan_pushed_back(name, failure))
        return answer

    def _planned(self, name: str, request: Any, retries: Retries, service: str = SERVICE) -> pb.PlanResponse:
        """Waits for a service that makes too many plans."""
        return self._connection.call_with_retries(
            retries, lambda seconds: self._connection.ask(name, request, pb.PlanResponse, seconds, service),
            lambda failure: not is_plan_pushed_back(name, failure))

    def plan(
            self, *, tokens: int, heads: int, head_dim: int, segments: Sequence[int],
            dilations: Optional[Sequence[int]] = None, kv_heads: Optional[int] = None, value_dim: Optional[int] = None,
            dtype: str = "float32", mixing: str = "head_groups", causal: bool = False, scale: Optional[float] = None,
            tail: str = "mask", average_groups: bool = True, ordering: Optional[Ordering] = None,
            sequence_lengths: Optional[Sequence[int]] = None, workers: int = 0,
            deadline: float = SHORT_CALL_SECONDS) -> pb.PlanResponse:
        """What a job would take in compute, memory, bytes and seconds, without running it.

        Args:
            workers: how many would share it; 0: as many as the service has now.
            deadline: seconds, waiting for a service that makes too many plans included.
            others: as of `attend`; kv_heads None means heads, value_dim None means head_dim.

        Returns:
            message PlanResponse of proto/hilbert_ring/v1/attention.proto.
        """
        pattern = pattern_of(segments, dilations, mixing, causal, scale, tail, average_groups, sequence_lengths)
        spec = make_spec(tokens=tokens, heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_dim=value_dim,
                         dtype=dtype, ordering=ordering, **pattern)
        request = pb.PlanRequest(spec=spec, workers=integer("workers", workers, 32))
        retries = AttendOptions(max_attempts=1000, deadline=deadline).retries(self._connection.timing)
        return self._planned("Plan", request, retries)

    def jobs(self) -> List[pb.Job]:
        """The caller's jobs that wait or run, by job id (message Job)."""
        response = self._connection.short("ListJobs", pb.ListJobsRequest(), pb.ListJobsResponse)
        return list(response.jobs)

    def cancel(self, job_id: str, caller: Optional[str] = None) -> None:
        """Ends a job, whose `attend` then raises CancelledError.

        Args:
            job_id: as `jobs` gives it.
            caller: whose job it is, for administrators; the caller's own when it is None.

        Raises:
            NotFoundError: no such job waits or runs.
            PermissionDeniedError: it is another caller's.
        """
        self._connection.short("CancelJob", cancel_request(job_id, caller), pb.CancelJobResponse)

    def status(self) -> pb.GetClusterResponse:
        """Workers, their memory, and rings, as they are now (message GetClusterResponse)."""
        return self._connection.short("GetCluster", pb.GetClusterRequest(), pb.GetClusterResponse)
