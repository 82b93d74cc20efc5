// hilbert-ring attend --stream: rows from pipes and growing files, results to a pipe or a file.

#include "client/cpp/attend_stream.h"

#include <malloc.h>

#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/job_run.h"
#include "client/cli/raw_output.h"
#include "client/cli/raw_rows.h"
#include "client/cli/table.h"
#include "client/cpp/job_files.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::cli {
namespace {

absl::Status CheckFlags(const AttendCommand& command) {
  const StreamFlags& stream = command.stream;
  const JobFlags& job = command.job;
  const bool apart = !job.q.empty() || !job.k.empty() || !job.v.empty();
  if (!stream.qkv.empty() && apart) {
    return absl::InvalidArgumentError("--qkv has all of q, k and v: omit --q, --k and --v");
  }
  if (stream.qkv.empty() && (job.q.empty() || job.k.empty() || job.v.empty())) {
    return absl::InvalidArgumentError("--stream needs --q, --k and --v, or --qkv");
  }
  if (!command.call.trace.empty()) {
    return absl::InvalidArgumentError("--trace: a stream has no trace");
  }
  return absl::OkStatus();
}

absl::Status CheckPaths(const GlobalOptions& global, const AttendCommand& command) {
  return CheckFiles(
      global,
      {{"--spec", command.job.spec},
       {"--q", command.job.q},
       {"--k", command.job.k},
       {"--v", command.job.v},
       {"--qkv", command.stream.qkv}},
      {{"--out", command.out}, {"--lse", command.lse}, {"--report", command.call.report}});
}

struct Stream {
  RawRows rows;
  RawOutput out;
  std::optional<RawOutput> lse;
};

absl::StatusOr<Stream> OpenStream(const AttendCommand& command, const JobSpec& spec,
                                  absl::Time start) {
  ASSIGN_OR_RETURN(RawRows rows, RawRows::Open({.q = command.job.q,
                                                .k = command.job.k,
                                                .v = command.job.v,
                                                .qkv = command.stream.qkv,
                                                .follow = command.stream.follow},
                                               spec, Interrupted));
  ReaderWait wait{.stopped = Interrupted};
  if (const auto& seconds = command.call.deadline_seconds) {
    wait.until = start + absl::Seconds(*seconds);
  }
  ASSIGN_OR_RETURN(RawOutput out, RawOutput::Open(command.out, wait));
  Stream stream{std::move(rows), std::move(out), std::nullopt};
  if (!command.lse.empty()) {
    ASSIGN_OR_RETURN(RawOutput lse, RawOutput::Open(command.lse, wait));
    stream.lse.emplace(std::move(lse));
  }
  return stream;
}

int NotOpened(const GlobalOptions& global, const absl::Status& status) {
  const bool ended = absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  return ended ? ServiceFailed(global, status) : BadInput(global, status);
}

absl::StatusOr<v1::Report> Call(const GlobalOptions& global, const AttendCommand& command,
                                const JobSpec& spec, absl::Time start, Stream& stream,
                                int& attempts) {
  JobTeller teller(global);
  client::JobOptions options = OptionsOf(global, command.call, start, teller);
  // After the stream has begun, the first interrupt ends its input, so that rows already read are
  // computed.
  std::atomic<bool> begun = false;
  options.cancelled = [&begun] { return !begun && Interrupted(); };
  client::AttendStreamCalls calls{.spec = spec,
                                  .want_lse = stream.lse.has_value(),
                                  .epoch_tokens = command.stream.epoch_tokens};
  calls.next = [&](const std::stop_token& over) {
    begun = true;
    return stream.rows.Next(over);
  };
  calls.take = [&stream](const client::StreamedRows& rows) {
    return (rows.tensor == v1::TENSOR_LSE ? *stream.lse : stream.out).Append(rows.bytes);
  };
  auto report = client::AttendStream(global.server, calls, options);
  attempts = teller.attempts();
  return report;
}

}  // namespace

int RunAttendStream(const GlobalOptions& global, const AttendCommand& command) {
  // More arenas would each keep freed memory, because threads pass messages to each other.
  mallopt(M_ARENA_MAX, 1);
  for (const absl::Status& status : {CheckFlags(command), CheckPaths(global, command)}) {
    if (!status.ok()) return BadInput(global, status);
  }
  JobFlags without_files = command.job;
  without_files.q = without_files.k = without_files.v = "";
  const absl::StatusOr<client::JobSource> source = SourceOf(global, without_files);
  if (!source.ok()) return BadInput(global, source.status());
  const absl::StatusOr<JobSpec> spec = client::ReadStreamSpec(*source);
  if (!spec.ok()) return BadInput(global, spec.status());
  CatchInterrupts();
  const absl::Time start = client::SteadyNow();
  absl::StatusOr<Stream> stream = OpenStream(command, *spec, start);
  if (!stream.ok()) return NotOpened(global, stream.status());
  absl::StatusOr<SideFiles> side = CreateSideFiles(command.call);
  if (!side.ok()) return BadInput(global, side.status());
  int attempts = 1;
  absl::StatusOr<v1::Report> report = Call(global, command, *spec, start, *stream, attempts);
  if (!report.ok()) return ServiceFailed(global, report.status());
  absl::Status ended = stream->out.End();
  if (ended.ok() && stream->lse) ended = stream->lse->End();
  if (!ended.ok()) return ServiceFailed(global, ended);
  WarnOfRows(global, *report);
  return EndJob(global, *side, *report,
                {.complete = command.out,
                 .what = absl::StrCat(FormatCount(report->tokens()), " tokens in ",
                                      FormatCount(report->epochs()), " epochs"),
                 .attempts = attempts,
                 .written = {command.out, command.lse, command.call.report}});
}

}  // namespace hilbert_ring::cli
