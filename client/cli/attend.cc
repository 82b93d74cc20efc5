// hilbert-ring attend: one job from .npy files to .npy files.

#include "client/cpp/attend.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/json_message.h"
#include "client/cli/progress_bar.h"
#include "client/cli/table.h"
#include "client/cli/trace_json.h"
#include "client/cpp/distinct_files.h"
#include "client/cpp/job_files.h"
#include "client/cpp/npy.h"
#include "client/cpp/pending_file.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/spec_notes.h"

namespace hilbert_ring::cli {
namespace {

using client::JobFiles;
using client::NpyWriter;
using client::PendingFile;

// Set by the first SIGINT or SIGTERM, so that the job is cancelled and partial files are removed;
// the second ends the process.
volatile std::sig_atomic_t interrupted = 0;

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

struct OutputFiles {
  NpyWriter out;
  std::optional<NpyWriter> lse;
  std::optional<PendingFile> report, trace;
};

absl::StatusOr<OutputFiles> CreateOutputs(const AttendCommand& command, const JobFiles& inputs) {
  const JobSpec& spec = inputs.job.spec;
  ASSIGN_OR_RETURN(NpyWriter out,
                   NpyWriter::Create(command.out, client::OutputType(spec, inputs.q.type()),
                                     client::TensorShape(spec, v1::TENSOR_OUT)));
  OutputFiles outputs{std::move(out)};
  if (!command.lse.empty()) {
    ASSIGN_OR_RETURN(outputs.lse, NpyWriter::Create(command.lse, client::NpyType::kFloat32,
                                                    client::TensorShape(spec, v1::TENSOR_LSE)));
  }
  for (const auto& [path, file] :
       {std::pair(&command.report, &outputs.report), std::pair(&command.trace, &outputs.trace)}) {
    if (path->empty()) continue;
    ASSIGN_OR_RETURN(*file, PendingFile::Create(*path));
  }
  return outputs;
}

absl::Status CheckIntact(const JobFiles& inputs, const OutputFiles& outputs) {
  RETURN_IF_ERROR(client::CheckIntact(inputs));
  RETURN_IF_ERROR(outputs.out.CheckIntact());
  return outputs.lse ? outputs.lse->CheckIntact() : absl::OkStatus();
}

// Of whoever started this program, by the variable that tools agree on.
std::string Traceparent() {
  const char* given = std::getenv("TRACEPARENT");
  const std::string_view text = given != nullptr ? given : "";
  const bool legal = text.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
  return legal ? std::string(text) : "";  // others could not be sent
}

struct CallResult {
  absl::StatusOr<v1::Report> report;
  int attempts = 1;
};

CallResult Call(const GlobalOptions& global, const AttendCommand& command, const JobFiles& files,
                const OutputFiles& outputs) {
  ProgressBar bar(global);
  RetryTeller retries(global);
  int attempts = 1;
  client::AttendInputs inputs{
      .spec = files.job.spec, .q = files.q.span(), .k = files.k.span(), .v = files.v.span()};
  if (files.job.coordinates) {
    inputs.coordinates = [&files](int64_t first_row, std::span<uint32_t> values) {
      files.job.coordinates->Read(first_row, values);
    };
  }
  inputs.sent = [&files](v1::Tensor tensor, int64_t begin, int64_t end) {
    (tensor == v1::TENSOR_Q   ? files.q
     : tensor == v1::TENSOR_K ? files.k
                              : files.v)
        .Release(begin, end);
  };
  client::AttendOptions options{
      .job_id = command.job_id,
      .max_attempts = command.max_attempts,
      .want_trace = !command.trace.empty(),
      .traceparent = Traceparent(),
      .progress =
          [&](const client::AttendProgress& progress) {
            if (progress.attempt == attempts) {  // they are numbered from 0
              ++attempts;
              bar.Interrupt([&] {
                retries.Tell({.failure = progress.last_failure,
                              .attempt = attempts,
                              .wait = progress.wait,
                              .away = progress.away});
              });
            }
            bar.Note(progress);
          },
      .cancelled = [&] { return interrupted != 0 || !CheckIntact(files, outputs).ok(); },
      .access = global.access,
  };
  if (command.deadline_seconds) options.deadline = absl::Seconds(*command.deadline_seconds);
  if (command.outage_seconds) options.outage_timeout = absl::Seconds(*command.outage_seconds);
  absl::StatusOr<v1::Report> report =
      client::Attend(global.server, inputs,
                     {.out = outputs.out.data(),
                      .lse = outputs.lse ? outputs.lse->data() : std::span<std::byte>()},
                     options);
  return {std::move(report), attempts};
}

absl::Status CheckPaths(const AttendCommand& command, const std::string& coords_path) {
  return client::CheckDistinct({{"--spec", command.job.spec},
                                {"--coords", coords_path},
                                {"--q", command.job.q},
                                {"--k", command.job.k},
                                {"--v", command.job.v}},
                               {{"--out", command.out},
                                {"--lse", command.lse},
                                {"--report", command.report},
                                {"--trace", command.trace}});
}

// Whatever has a name is on disk; the results come before the report, which can be had again.
absl::Status Commit(OutputFiles& outputs, const std::string& report_json,
                    const std::string& trace_json) {
  RETURN_IF_ERROR(outputs.out.Sync());
  if (outputs.lse) {
    RETURN_IF_ERROR(outputs.lse->Sync());
  }
  RETURN_IF_ERROR(outputs.out.Commit());
  if (outputs.lse) {
    RETURN_IF_ERROR(outputs.lse->Commit());
  }
  for (const auto& [file, json] :
       {std::pair(&outputs.report, &report_json), std::pair(&outputs.trace, &trace_json)}) {
    if (!*file) continue;
    absl::Status status = (*file)->Append(absl::StrCat(*json, "\n"));
    if (status.ok()) status = (*file)->Commit();
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), "; ", outputs.out.path(), " is complete"));
  }
  return absl::OkStatus();
}

void WarnOfRows(const GlobalOptions& global, const v1::Report& report) {
  if (report.rows_not_finite() == 0) return;
  PrintWarning(global, absl::StrCat(report.rows_not_finite(), " of ", report.tokens(),
                                    " rows of the output are not finite, the first for token ",
                                    report.first_row_not_finite()));
}

void PrintSummary(const v1::Report& report, int attempts) {
  std::printf("job %s: %s tokens in %s, %s tokens/s\n", report.job_id().c_str(),
              FormatCount(report.tokens()).c_str(), FormatSeconds(report.total_seconds()).c_str(),
              FormatCount(static_cast<int64_t>(report.tokens_per_second())).c_str());
  std::printf("  queue %s, ring %s, receive %s, compute %s, send %s\n",
              FormatSeconds(report.queue_seconds()).c_str(),
              FormatSeconds(report.ring_seconds()).c_str(),
              FormatSeconds(report.receive_seconds()).c_str(),
              FormatSeconds(report.compute_seconds()).c_str(),
              FormatSeconds(report.send_seconds()).c_str());
  std::printf("  exchanged %s, planned %s; a naive ring: %s\n",
              FormatBytes(static_cast<double>(report.bytes_exchanged())).c_str(),
              FormatBytes(static_cast<double>(report.bytes_exchanged_planned())).c_str(),
              FormatBytes(static_cast<double>(report.bytes_exchanged_naive())).c_str());
  std::printf("  attempts %d, retries by the service %d\n", attempts, report.retries());
  if (report.rows_checked() > 0) {
    std::printf("  rows computed again by the service %d\n", report.rows_checked());
  }
  if (report.rows_not_judged() > 0) {
    std::printf("  rows not judged, since they see numbers that are not finite %d\n",
                report.rows_not_judged());
  }
  std::vector<std::vector<std::string>> rows = {{"worker", "tokens", "memory", "predicted",
                                                 "received", "compute", "exchange", "exposed",
                                                 "kernel"}};
  for (const v1::WorkerReport& worker : report.workers()) {
    rows.push_back({worker.worker(), FormatCount(worker.tokens()),
                    FormatBytes(static_cast<double>(worker.memory_peak_bytes())),
                    FormatBytes(static_cast<double>(worker.memory_predicted_bytes())),
                    FormatBytes(static_cast<double>(worker.bytes_received())),
                    FormatSeconds(worker.compute_seconds()),
                    FormatSeconds(worker.exchange_seconds()),
                    FormatSeconds(worker.exposed_exchange_seconds()), worker.kernel()});
  }
  std::fputs(FormatTable(rows).c_str(), stdout);
}

}  // namespace

int RunAttend(const GlobalOptions& global, const AttendCommand& command) {
  const absl::StatusOr<client::JobSource> source = SourceOf(command.job);
  if (!source.ok()) return BadInput(global, source.status());
  const absl::StatusOr<JobFiles> inputs = client::OpenJob(*source);
  if (!inputs.ok()) return BadInput(global, inputs.status());
  absl::Status distinct = CheckPaths(command, inputs->job.coords_path);
  if (!distinct.ok()) return BadInput(global, distinct);
  PrintNotes(global, NotesOn(inputs->job.spec));
  CatchInterrupts();
  absl::StatusOr<OutputFiles> outputs = CreateOutputs(command, *inputs);
  if (!outputs.ok()) return BadInput(global, outputs.status());
  auto [report, attempts] = Call(global, command, *inputs, *outputs);
  absl::Status intact = CheckIntact(*inputs, *outputs);
  if (!intact.ok()) return ServiceFailed(global, intact);
  if (!report.ok()) return ServiceFailed(global, report.status());
  WarnOfRows(global, *report);
  const std::string trace = command.trace.empty() ? "" : TraceAsJson(*report);
  RemoveSpans(*report);  // they have a file of their own
  const std::string json = MessageAsJson(*report);
  if (absl::Status status = Commit(*outputs, json, trace); !status.ok()) {
    return ServiceFailed(global, status);
  }
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", json.c_str());
  } else {
    PrintSummary(*report, attempts);
  }
  return kExitOk;
}

}  // namespace hilbert_ring::cli
