#include "client/cli/job_run.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/file_flags.h"
#include "client/cli/json_message.h"
#include "client/cli/table.h"
#include "client/cli/trace_json.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/return_if_error.h"
#include "wire/control_characters.h"

namespace hilbert_ring::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// Rejects NaN and infinities too.
CLI::Validator SecondsFrom(double least) {
  return CLI::Validator(
      [least](const std::string& text) {
        constexpr double kMost = 1e9;
        double seconds = 0;
        const bool in_range =
            absl::SimpleAtod(text, &seconds) && seconds >= least && seconds <= kMost;
        return in_range ? ""
                        : absl::StrCat(text, ", expected a number of seconds from ", least, " to ",
                                       kMost);
      },
      "");
}

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

void AddCallFlags(CLI::App& app, CallFlags& flags) {
  const auto file = [&app](const char* flag, std::string& path, const char* help) {
    app.add_option(flag, path, help)->type_name("FILE");
  };
  file("--report", flags.report, "JSON to write: the service's report of the job (-: stdout)");
  file("--trace", flags.trace,
       "JSON to write: the job's timeline in the format of Perfetto and chrome://tracing (-: "
       "stdout)");
  app.add_option("--job-id", flags.job_id, "name of the job (default: drawn)")->type_name("NAME");
  AddAttemptFlags(app, flags);
}

void AddAttemptFlags(CLI::App& app, CallFlags& flags) {
  app.add_option("--deadline", flags.deadline_seconds,
                 "limit of the whole job with all attempts (default: no limit)")
      ->type_name("SECONDS")
      ->check(SecondsFrom(0.001));
  app.add_option("--outage-timeout", flags.outage_seconds,
                 "limit of one outage of the service (default: the deadline, or 30 without one)")
      ->type_name("SECONDS")
      ->check(SecondsFrom(0));
  app.add_option(
         "--max-attempts", flags.max_attempts,
         "attempts if the service is busy or loses the job, 1 to 1000; an attempt that finds the "
         "service away does not count, nor, with a deadline, an attempt that finds it full; 1: a "
         "failure is final")
      ->type_name("N")
      ->check(CLI::Range(1, 1000).description(""))
      ->capture_default_str();
}

void AddReferenceFlags(CLI::App& app, ReferenceFlags& flags) {
  app.add_option(
         "--by-reference", flags.by_reference,
         "auto: files beneath the service's data root, if this machine sees it too, pass by "
         "path: the workers read and write them; others are sent; always: an error if "
         "tensors would be sent; never: all tensors are sent")
      ->type_name("auto|always|never")
      ->check(CLI::IsMember({"auto", "always", "never"}).description(""))
      ->capture_default_str();
  app.add_option("--data-root", flags.data_root,
                 "path of the service's data root on this machine (default: the service's path)")
      ->type_name("FOLDER");
}

void AddStreamFlags(CLI::App& app, StreamFlags& flags) {
  app.add_flag("--stream", flags.stream,
               "q, k and v are pipes or files of raw rows of unknown number. The service computes "
               "them epoch by epoch; --out and --lse get raw rows in order (-: stdout). The spec "
               "has no tokens, and its sequence_lengths repeat. The first Ctrl-C ends the input");
  app.add_option("--qkv", flags.qkv,
                 "with --stream, instead of --q, --k and --v: rows of q, k and v of each token, "
                 "interleaved (-: stdin)")
      ->type_name("FILE");
  app.add_flag(
      "--follow", flags.follow,
      "with --stream: regular files grow, and Ctrl-C ends the stream instead of their end");
  app.add_option(
         "--epoch", flags.epoch_tokens,
         "with --stream: tokens of an epoch, a multiple of all segments (default: the service's "
         "maximum)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40).description(""));
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

void JobTeller::Note(const client::JobProgress& progress) {
  if (progress.attempt == attempts_) {  // attempts are numbered from 0
    ++attempts_;
    bar_.Interrupt([&] {
      retries_.Tell({.failure = progress.last_failure,
                     .attempt = attempts_,
                     .wait = progress.wait,
                     .away = progress.away});
    });
  }
  bar_.Note(progress);
}

client::JobOptions OptionsOf(const GlobalOptions& global, const CallFlags& flags, absl::Time begun,
                             JobTeller& teller, std::function<bool()> intact) {
  client::JobOptions options{
      .job_id = flags.job_id,
      .max_attempts = flags.max_attempts,
      .spent = client::SteadyNow() - begun,
      .want_trace = !flags.trace.empty(),
      .traceparent = Traceparent(),
      .progress = [&teller](const client::JobProgress& progress) { teller.Note(progress); },
      .cancelled = [intact = std::move(intact)] { return Interrupted() || !intact(); },
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

absl::StatusOr<SideFiles> SideFiles::Create(const CallFlags& flags) {
  SideFiles files;
  for (const auto& [path, file] :
       {std::pair(&flags.report, &files.report_), std::pair(&flags.trace, &files.trace_)}) {
    if (path->empty()) continue;
    ASSIGN_OR_RETURN(*file, client::PendingFile::Create(*path));
  }
  return files;
}

absl::Status SideFiles::Commit(v1::Report& report, const std::string& complete, std::string& json) {
  std::string trace = trace_ ? TraceAsJson(report) : "";
  RemoveSpans(report);
  json = MessageAsJson(report);
  for (const auto& [file, text] : {std::pair(&report_, &json), std::pair(&trace_, &trace)}) {
    if (!*file) continue;
    absl::Status status = (*file)->Append(absl::StrCat(*text, "\n"));
    if (status.ok()) status = (*file)->Commit();
    if (status.ok()) continue;
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), "; ", complete, " is complete"));
  }
  return absl::OkStatus();
}

void WarnOfRows(const GlobalOptions& global, const v1::Report& report) {
  if (report.rows_not_finite() <= 0) return;
  PrintWarning(global, absl::StrCat(report.rows_not_finite(), " of ", report.tokens(),
                                    " rows of the output are not finite, the first for token ",
                                    report.first_row_not_finite()));
}

int EndJob(const GlobalOptions& global, SideFiles& side, v1::Report& report, const DoneJob& done) {
  std::string json;
  if (absl::Status status = side.Commit(report, done.complete, json); !status.ok()) {
    return ServiceFailed(global, status);
  }
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", json.c_str());
  } else if (!TakeStdout(done.written)) {
    PrintSummary(report, done.what, done.attempts);
  }
  return kExitOk;
}

}  // namespace hilbert_ring::cli
