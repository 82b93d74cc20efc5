#include "client/cli/job_run.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/json_message.h"
#include "client/cli/table.h"
#include "client/cpp/pending_file.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/return_if_error.h"
#include "wire/control_characters.h"

namespace hilbert_ring::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// Returns the caller's trace from the environment variable that tracing tools share.
std::string Traceparent() {
  const char* given = std::getenv("TRACEPARENT");
  const std::string_view text = given != nullptr ? given : "";
  const bool legal = text.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
  return legal ? std::string(text) : "";  // other characters cannot be sent
}

void PrintSummary(const v1::Report& report, const std::string& what, int attempts) {
  std::printf("job %s: %s in %s, %s tokens/s\n", wire::EscapeControls(report.job_id()).c_str(),
              what.c_str(), FormatSeconds(report.total_seconds()).c_str(),
              FormatRate(report.tokens_per_second()).c_str());
  std::printf("  queue %s, ring %s, receive %s, compute %s, send %s\n",
              FormatSeconds(report.queue_seconds()).c_str(),
              FormatSeconds(report.ring_seconds()).c_str(),
              FormatSeconds(report.receive_seconds()).c_str(),
              FormatSeconds(report.compute_seconds()).c_str(),
              FormatSeconds(report.send_seconds()).c_str());
  std::printf("  exchanged %s, planned %s; a naive ring: %s\n",
              FormatBytes(report.bytes_exchanged()).c_str(),
              FormatBytes(report.bytes_exchanged_planned()).c_str(),
              FormatBytes(report.bytes_exchanged_naive()).c_str());
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
    rows.push_back(
        {worker.worker(), FormatCount(worker.tokens()), FormatBytes(worker.memory_peak_bytes()),
         FormatBytes(worker.memory_predicted_bytes()), FormatBytes(worker.bytes_received()),
         FormatSeconds(worker.compute_seconds()), FormatSeconds(worker.exchange_seconds()),
         FormatSeconds(worker.exposed_exchange_seconds()), worker.kernel()});
  }
  std::fputs(FormatTable(rows).c_str(), stdout);
}

absl::Status CheckStdout(const GlobalOptions& global,
                         const std::vector<client::NamedFile>& outputs) {
  std::string first;
  for (const client::NamedFile& output : outputs) {
    if (!client::IsStdout(output.path)) continue;
    const std::string text = absl::StrCat(output.name, " ", output.path);
    if (global.format == OutputFormat::kJson) {
      return absl::InvalidArgumentError(
          absl::StrCat(text, ": stdout has what --json prints; omit one of them"));
    }
    if (!first.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(text, ": stdout is taken by ", first, "; give one of them a file"));
    }
    first = text;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFiles(const GlobalOptions& global, std::vector<client::NamedFile> inputs,
                        const std::vector<client::NamedFile>& outputs) {
  RETURN_IF_ERROR(CheckStdout(global, outputs));
  const client::Access& access = global.access;
  inputs.insert(inputs.end(), {{"--token-file", access.token_file},
                               {"--ca", access.ca},
                               {"--cert", access.cert},
                               {"--key", access.key}});
  return client::CheckDistinct(inputs, outputs);
}

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT}) sigaction(signal, &action, nullptr);
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

client::JobOptions OptionsOf(const GlobalOptions& global, const CallFlags& flags, absl::Time begun,
                             JobTeller& teller, std::function<bool()> intact) {
  client::JobOptions options{
      .job_id = flags.job_id,
      .max_attempts = flags.max_attempts,
      .spent = client::SteadyNow() - begun,
      .want_trace = !flags.trace.empty(),
      .traceparent = Traceparent(),
      .progress = [&teller](const client::JobProgress& progress) { teller.Note(progress); },
      .cancelled = [intact = std::move(intact)] { return Interrupted() || (intact && !intact()); },
      .access = global.access,
  };
  if (flags.deadline_seconds) options.deadline = absl::Seconds(*flags.deadline_seconds);
  if (flags.outage_seconds) options.outage_timeout = absl::Seconds(*flags.outage_seconds);
  return options;
}

absl::Duration OutageOf(const CallFlags& flags) {
  if (flags.outage_seconds) return absl::Seconds(*flags.outage_seconds);
  return flags.deadline_seconds ? absl::Seconds(*flags.deadline_seconds) : client::kOutageTimeout;
}

absl::Duration DeadlineLeft(const CallFlags& flags, absl::Time begun) {
  if (!flags.deadline_seconds) return absl::InfiniteDuration();
  return absl::Seconds(*flags.deadline_seconds) - (client::SteadyNow() - begun);
}

absl::StatusOr<SideFiles> CreateSideFiles(const CallFlags& flags) {
  SideFiles files;
  for (const auto& [path, file] :
       {std::pair(&flags.report, &files.report), std::pair(&flags.trace, &files.trace)}) {
    if (path->empty()) continue;
    ASSIGN_OR_RETURN(*file, client::PendingFile::Create(*path));
  }
  return files;
}

void WarnOfRows(const GlobalOptions& global, const v1::Report& report) {
  if (report.rows_not_finite() <= 0) return;
  PrintWarning(global, absl::StrCat(report.rows_not_finite(), " of ", report.tokens(),
                                    " rows of the output are not finite, the first for token ",
                                    report.first_row_not_finite()));
}

int EndJob(const GlobalOptions& global, SideFiles& side, v1::Report& report, const DoneJob& done) {
  const std::string trace = side.trace ? TraceAsJson(report) : "";
  report.clear_spans();
  for (v1::WorkerReport& worker : *report.mutable_workers()) worker.clear_spans();
  const std::string json = MessageAsJson(report);
  for (const auto& [file, text] :
       {std::pair(&side.report, &json), std::pair(&side.trace, &trace)}) {
    if (!*file) continue;
    absl::Status status = (*file)->Append(absl::StrCat(*text, "\n"));
    if (status.ok()) status = (*file)->Commit();
    if (status.ok()) continue;
    return ServiceFailed(
        global, absl::Status(status.code(),
                             absl::StrCat(status.message(), "; ", done.complete, " is complete")));
  }
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", json.c_str());
  } else if (!std::ranges::any_of(done.written, client::IsStdout)) {
    PrintSummary(report, done.what, done.attempts);
  }
  return kExitOk;
}

}  // namespace hilbert_ring::cli
