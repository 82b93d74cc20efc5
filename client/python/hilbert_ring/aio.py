"""The client for asyncio: what hilbert_ring.Client does, awaited.

    client = hilbert_ring.aio.connect("localhost:8001")
    async with client:
        result = await client.attend(q, k, v, segments=[4096])

A task that is cancelled while it awaits a call ends its job.
"""
import asyncio
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, AsyncIterable, Callable, FrozenSet, Iterable, List, Optional, Sequence, Tuple, Union

from hilbert_ring._attempt import Attempt, JobCall, Progress, ProgressTeller
from hilbert_ring._attempt_aio import AioAttempt
from hilbert_ring._by_reference import may_send, parts_of, warn_of_sending, with_files
from hilbert_ring._channel import ENCODER_SERVICE, SHORT_CALL_SECONDS, Address, PathLike, Pem, address_of
from hilbert_ring._connection_aio import AioConnection
from hilbert_ring._distinct import check_shown
from hilbert_ring._encode import EncodeResult, Layers, Wanted, encoded, prepare_encode, prepare_plan
from hilbert_ring._files import checked_path
from hilbert_ring._handed import ASK_SECONDS, handing_of, may_send_handed
from hilbert_ring._job import (AttendOptions, AttendResult, ProgressOption, cancel_request,
                               curve_request, pattern_of, prepare, result_of, with_curve)
from hilbert_ring._many import ManyCall, ManyResult, SmallJob
from hilbert_ring._many_aio import run_many
from hilbert_ring._model import model_request
from hilbert_ring._progress import shown
from hilbert_ring._retry import AttemptFailure, Attempts
from hilbert_ring._spec import integer, make_spec
from hilbert_ring._stream import StreamState, prepare_stream
from hilbert_ring._stream_aio import AttendStream, Blocks, run_stream
from hilbert_ring._torch_streams import CallerStreams, with_streams_of_call
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.ordering import Ordering
from hilbert_ring.v1 import attention_pb2 as pb
from hilbert_ring.v1 import encoder_pb2 as encoder_pb

__all__ = ["Client", "connect"]


def connect(server: Optional[str] = None, *, token: Optional[str] = None,
            token_file: Optional[PathLike] = None, tls: Optional[bool] = None,
            ca: Optional[Pem] = None, cert: Optional[Pem] = None, key: Optional[Pem] = None,
            server_name: Optional[str] = None, insecure: bool = False,
            data_root: Optional[PathLike] = None, keepalive_interval: Optional[float] = None) -> "Client":
    """As of hilbert_ring.connect. All calls are made in the event loop of the first call."""
    return Client(address_of(server, token=token, token_file=token_file, tls=tls, ca=ca, cert=cert,
                             key=key, server_name=server_name, insecure=insecure,
                             keepalive_interval=keepalive_interval), data_root)


class Client:
    """A connection to a service, for one event loop; ends with `close` or an `async with` block."""

    def __init__(self, address: Address, data_root: Optional[PathLike] = None) -> None:
        self.server = address.server
        self._address = address
        self._shown = address.files
        self._data_root = None if data_root is None else Path(checked_path("data_root", data_root))
        self._connection = AioConnection(address)

    def __reduce__(self) -> Any:
        """The client's arguments: another process connects anew."""
        return partial(connect, **self._address.pickled(), data_root=self._data_root), ()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection. Calls that are under way, and later ones, raise CancelledError."""
        await self._connection.close()

    @with_streams_of_call
    async def attend(self, q: Any, k: Any, v: Any, *, segments: Sequence[int],
                     dilations: Optional[Sequence[int]] = None, mixing: str = "head_groups",
                     causal: bool = False, scale: Optional[float] = None, tail: str = "mask",
                     average_groups: bool = True, ordering: Optional[Ordering] = None,
                     sequence_lengths: Optional[Sequence[int]] = None,
                     dtype: Optional[str] = None, lse: Any = None, out: Any = None,
                     by_reference: str = "auto", job_id: Optional[str] = None,
                     deadline: Optional[float] = None, outage_timeout: Optional[float] = None,
                     max_attempts: int = 10, chunk_bytes: int = 4 << 20,
                     progress: ProgressOption = None) -> AttendResult:
        """As of hilbert_ring.Client.attend. Rows are read in a thread of the loop's executor."""
        options = AttendOptions(job_id, deadline, outage_timeout, max_attempts, chunk_bytes,
                                progress, by_reference)
        pattern = pattern_of(segments, dilations, mixing, causal, scale, tail, average_groups,
                             sequence_lengths)
        check_shown(self._shown, {"out": out, "lse": lse})
        call = prepare(q, k, v, dtype=dtype, lse=lse, out=out, options=options, ordering=ordering,
                       pattern=pattern)
        attempts = options.attempts(self._connection.timing)
        request, why = curve_request(call), ""
        if request is not None:
            plan = await self._connection.ask("Plan", request, pb.PlanResponse, attempts)
            call, why = with_curve(call, plan), plan.curve_why
        with shown(progress) as tell, closing(call):
            call, report = await self._run_job(call, attempts, tell)
            return result_of(call, report, ordering, why)

    def attend_stream(self, blocks: Blocks, *, segments: Sequence[int],
                      dilations: Optional[Sequence[int]] = None, mixing: str = "head_groups",
                      causal: bool = False, scale: Optional[float] = None, tail: str = "mask",
                      average_groups: bool = True, ordering: Optional[Ordering] = None,
                      sequence_lengths: Optional[Sequence[int]] = None,
                      dtype: Optional[str] = None, lse: bool = False,
                      epoch_tokens: Optional[int] = None, job_id: Optional[str] = None,
                      deadline: Optional[float] = None, outage_timeout: Optional[float] = None,
                      max_attempts: int = 10, chunk_bytes: int = 1 << 20) -> AttendStream:
        """As of hilbert_ring.Client.attend_stream; blocks may be an asynchronous iterator, and the
        results are one."""
        options = AttendOptions(job_id, deadline, outage_timeout, max_attempts, chunk_bytes)
        pattern = pattern_of(segments, dilations, mixing, causal, scale, tail, average_groups,
                             sequence_lengths)
        state, streams = StreamState(), CallerStreams()
        prepared = partial(prepare_stream, dtype=dtype, lse=lse, epoch_tokens=epoch_tokens,
                           options=options, ordering=ordering, pattern=pattern, streams=streams)
        asked = blocks if isinstance(blocks, AsyncIterable) else streams.iterate(blocks)
        return AttendStream(run_stream(self._connection, asked, prepared, state), state)

    @with_streams_of_call
    async def attend_many(self, jobs: Iterable[SmallJob], *, deadline: Optional[float] = None,
                          outage_timeout: Optional[float] = None, max_attempts: int = 10,
                          chunk_bytes: int = 1 << 20, **common: Any) -> List[ManyResult]:
        """As of hilbert_ring.Client.attend_many."""
        options = AttendOptions(None, deadline, outage_timeout, max_attempts, chunk_bytes)
        return await run_many(self._run, ManyCall(list(jobs), options, common, self._connection.timing))

    @with_streams_of_call
    async def encode(self, tiles: Any = None, coords: Any = None, *, model: str, slide: Any = None,
                     pool: Optional[str] = None, layers: Layers = "last",
                     final_norm: Optional[bool] = None, compute: str = "float32",
                     sequence_lengths: Optional[Sequence[int]] = None,
                     attention_map: Union[bool, int] = False, attention_map_heads: bool = False,
                     attention_map_out: Any = None, dtype: Optional[str] = None,
                     out: Any = None, by_reference: str = "auto", job_id: Optional[str] = None,
                     deadline: Optional[float] = None, outage_timeout: Optional[float] = None,
                     max_attempts: int = 10, chunk_bytes: int = 4 << 20,
                     progress: ProgressOption = None) -> EncodeResult:
        """As of hilbert_ring.Client.encode."""
        options = AttendOptions(job_id, deadline, outage_timeout, max_attempts, chunk_bytes,
                                progress, by_reference)
        wanted = Wanted(pool, layers, final_norm, compute, sequence_lengths, attention_map,
                        attention_map_heads, attention_map_out)
        attempts = options.attempts(self._connection.timing)
        check_shown(self._shown, {"out": out, "attention_map_out": attention_map_out})
        found = await self._model_of(model, attempts)  # off the loop: files are read, and looked through
        call = await asyncio.to_thread(prepare_encode, found, tiles, coords, slide=slide, dtype=dtype, out=out,
                                       wanted=wanted, options=options)
        with shown(progress) as tell, closing(call):
            call, report = await self._run_job(call, attempts, tell)
            return encoded(call, report)

    async def plan_encode(self, tiles: int, *, model: str,
                          pool: Optional[str] = None, layers: Layers = "last",
                          final_norm: Optional[bool] = None, compute: str = "float32",
                          sequence_lengths: Optional[Sequence[int]] = None,
                          attention_map: Union[bool, int] = False,
                          attention_map_heads: bool = False, dtype: str = "float32",
                          workers: int = 0, deadline: float = SHORT_CALL_SECONDS) -> pb.PlanResponse:
        """As of hilbert_ring.Client.plan_encode."""
        wanted = Wanted(pool, layers, final_norm, compute, sequence_lengths, attention_map,
                        attention_map_heads)
        options = AttendOptions(max_attempts=1000, deadline=deadline)
        attempts = options.attempts(self._connection.timing)
        request = prepare_plan(await self._model_of(model, attempts), tiles, dtype=dtype, wanted=wanted,
                               workers=workers)
        return await self._connection.plan(request, attempts)

    async def models(self) -> List[encoder_pb.Model]:
        """As of hilbert_ring.Client.models."""
        response = await self._connection.short("ListModels", encoder_pb.ListModelsRequest(),
                               encoder_pb.ListModelsResponse, service=ENCODER_SERVICE)
        return list(response.models)

    async def model(self, name: str) -> encoder_pb.Model:
        """As of hilbert_ring.Client.model."""
        found: encoder_pb.Model = await self._connection.short(
            "GetModel", model_request(name), encoder_pb.Model,
            service=ENCODER_SERVICE)
        return found

    async def _model_of(self, name: str, attempts: Attempts) -> encoder_pb.Model:
        found: encoder_pb.Model = await self._connection.ask(
            "GetModel", model_request(name), encoder_pb.Model, attempts, ENCODER_SERVICE)
        return found

    async def _run_job(self, call: JobCall, attempts: Attempts,
                       tell: Optional[Callable[[Progress], None]]) -> Tuple[JobCall, pb.Report]:
        """By reference where that can be, else its tensors are sent: the job as it was done."""
        named = await self._name_files(call, attempts)
        if named is not None:
            try:
                return named, await self._run(named, attempts, tell, may_send(call))
            except HilbertRingError as error:
                if error.reason not in may_send(call):
                    raise
                warn_of_sending(error)
        else:
            done = await self._run_handed(call, attempts, tell)
            if done is not None:
                return done
        return call, await self._run(call, attempts, tell)

    async def _run_handed(self, call: JobCall, attempts: Attempts,
                          tell: Optional[Callable[[Progress], None]]
                          ) -> Optional[Tuple[JobCall, pb.Report]]:
        """None: its tensors are to be sent."""
        handing = handing_of(call)
        if handing is None:
            return None
        with closing(handing):
            try:
                root: pb.GetDataRootResponse = await self._connection.short(
                    "GetDataRoot", pb.GetDataRootRequest(), pb.GetDataRootResponse, ASK_SECONDS)
            except HilbertRingError:
                return None  # which the job's call is told, too, where it matters
            handed = await _to_its_end(handing.stop, handing.name, root, self._data_root)
            if handed is None:
                return None
            try:
                report = await self._run(handed, attempts, tell, may_send_handed(call))
                return await _to_its_end(handing.stop, handing.take, handed), report
            except HilbertRingError as error:
                if error.reason not in may_send_handed(call):
                    raise
                warn_of_sending(error)
                return None

    async def _name_files(self, call: JobCall, attempts: Attempts) -> Optional[JobCall]:
        """None: its tensors are to be sent."""
        parts = parts_of(call)
        if parts is None:
            return None
        try:
            root: pb.GetDataRootResponse = await self._connection.ask(
                "GetDataRoot", pb.GetDataRootRequest(), pb.GetDataRootResponse, attempts)
        except HilbertRingError:
            if call.by_reference == "always":
                raise
            return None
        return await asyncio.to_thread(with_files, call, parts, root, self._data_root)

    async def _run(self, call: JobCall, attempts: Attempts,
                   tell: Optional[Callable[[Progress], None]],
                   final: FrozenSet[str] = frozenset()) -> pb.Report:
        await _to_its_end(lambda: None, call.make_room)
        number = 0
        teller = ProgressTeller(tell, call.progress(number))
        while True:
            attempt = AioAttempt(Attempt(call, number, teller))
            outcome = await attempt.run(self._connection, attempts.deadline_left())
            if not isinstance(outcome, AttemptFailure):
                return outcome
            if outcome.error.reason in final:
                raise outcome.error
            wait = attempts.wait_after(outcome)
            number += 1
            teller = ProgressTeller(tell, call.progress(number, outcome.error, wait))
            teller.update()
            await self._connection.come_back(attempts, outcome, wait)

    async def plan(self, *, tokens: int, heads: int, head_dim: int, segments: Sequence[int],
                   dilations: Optional[Sequence[int]] = None, kv_heads: Optional[int] = None,
                   value_dim: Optional[int] = None, dtype: str = "float32",
                   mixing: str = "head_groups", causal: bool = False,
                   scale: Optional[float] = None, tail: str = "mask",
                   average_groups: bool = True, ordering: Optional[Ordering] = None,
                   sequence_lengths: Optional[Sequence[int]] = None, workers: int = 0,
                   deadline: float = SHORT_CALL_SECONDS) -> pb.PlanResponse:
        """As of hilbert_ring.Client.plan."""
        pattern = pattern_of(segments, dilations, mixing, causal, scale, tail, average_groups,
                             sequence_lengths)
        spec = make_spec(tokens=tokens, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
                         value_dim=value_dim, dtype=dtype, ordering=ordering, **pattern)
        request = pb.PlanRequest(spec=spec, workers=integer("workers", workers, 32))
        attempts = AttendOptions(max_attempts=1000, deadline=deadline).attempts(self._connection.timing)
        return await self._connection.plan(request, attempts)

    async def jobs(self) -> List[pb.Job]:
        """As of hilbert_ring.Client.jobs."""
        response = await self._connection.short("ListJobs", pb.ListJobsRequest(), pb.ListJobsResponse)
        return list(response.jobs)

    async def cancel(self, job_id: str, caller: Optional[str] = None) -> None:
        """As of hilbert_ring.Client.cancel."""
        await self._connection.short("CancelJob", cancel_request(job_id, caller),
                          pb.CancelJobResponse)

    async def status(self) -> pb.GetClusterResponse:
        """As of hilbert_ring.Client.status."""
        status: pb.GetClusterResponse = await self._connection.short(
            "GetCluster", pb.GetClusterRequest(), pb.GetClusterResponse)
        return status


async def _to_its_end(stop: Callable[[], None], function: Callable[..., Any], *arguments: Any) -> Any:
    """In a thread, which is awaited in any case: a task that is cancelled calls `stop` before."""
    thread = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([thread])
        raise
