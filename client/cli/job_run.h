// What the commands that run a job have in common: interrupts, options of the call, what is told of
// it, and the files that are written beside the results.
//
//   CatchInterrupts();
//   ASSIGN_OR_RETURN(SideFiles side, SideFiles::Create(command.call));
//   JobTeller teller(global);
//   const client::JobOptions options = OptionsOf(global, command.call, teller, intact);
//   ... the call ...
//   return EndJob(global, side, report, {.complete = command.out, .what = "1,000 tokens"});
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/progress_bar.h"
#include "client/cpp/job_options.h"
#include "client/cpp/pending_file.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace CLI {
class App;
}

namespace hilbert_ring::cli {

// --report, --trace, --job-id and so on. flags must outlive app.
void AddCallFlags(CLI::App& app, CallFlags& flags);

// Of those, --deadline, --outage-timeout and --max-attempts. flags must outlive app.
void AddAttemptFlags(CLI::App& app, CallFlags& flags);

// --by-reference and --data-root. flags must outlive app.
void AddReferenceFlags(CLI::App& app, ReferenceFlags& flags);

// --stream and what goes with it. flags must outlive app.
void AddStreamFlags(CLI::App& app, StreamFlags& flags);

// From now on the first SIGINT, SIGTERM, SIGQUIT or SIGHUP cancels the job, so that partial files
// are removed; the second ends the process. A SIGHUP that is ignored, as under nohup, stays so.
void CatchInterrupts();

// Whether the first one has come.
bool Interrupted();

// Tells of a job on stderr: how far it is, and why it is tried again.
class JobTeller {
 public:
  explicit JobTeller(const GlobalOptions& global) : bar_(global), retries_(global) {}

  void Note(const client::JobProgress& progress);
  int attempts() const { return attempts_; }

 private:
  ProgressBar bar_;
  RetryTeller retries_;
  int attempts_ = 1;
};

// begun: since when the deadline runs, which all calls of a command share. intact: whether the
// files are as they were; one that is not ends the job. All outlive the call.
client::JobOptions OptionsOf(const GlobalOptions& global, const CallFlags& flags, absl::Time begun,
                             JobTeller& teller, std::function<bool()> intact);

// How long the service may be away before the job's call begins, as that takes it.
absl::Duration OutageOf(const CallFlags& flags);

// What is left of the deadline, which runs since `begun`.
absl::Duration DeadlineLeft(const CallFlags& flags, absl::Time begun);

// The report and the timeline.
class SideFiles {
 public:
  static absl::StatusOr<SideFiles> Create(const CallFlags& flags);

  // After the results, which `complete` names: they can be had again. Takes the spans out of the
  // report; `json` is what is left of it.
  absl::Status Commit(v1::Report& report, const std::string& complete, std::string& json);

 private:
  std::optional<client::PendingFile> report_, trace_;
};

void WarnOfRows(const GlobalOptions& global, const v1::Report& report);

// A job whose results are in their files.
struct DoneJob {
  std::string complete;  // the first of them
  std::string what;      // "1,000 tokens"
  int attempts = 1;
  std::vector<std::string> written;  // paths: where one is stdout, nothing else is printed there
};

// Writes the report and the timeline and prints the result. Returns the exit code.
int EndJob(const GlobalOptions& global, SideFiles& side, v1::Report& report, const DoneJob& done);

}  // namespace hilbert_ring::cli
