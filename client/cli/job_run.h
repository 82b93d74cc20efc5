// Shared parts of commands that run a job: interrupts, options of the call, messages about the job,
// and files beside the results.
//
//   CatchInterrupts();
//   ASSIGN_OR_RETURN(SideFiles side, CreateSideFiles(command.call));
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
#include "client/cli/job_teller.h"
#include "client/cpp/distinct_files.h"
#include "client/cpp/job_options.h"
#include "client/cpp/pending_file.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::cli {

// Checks the input and output files of a command by their flags, before any is touched.
// INVALID_ARGUMENT: an output would replace an input, another output, or a file of the caller's
// identity (--token-file, --ca, --cert, --key, or its variable). Also if two results would go to
// stdout (--json writes one).
absl::Status CheckFiles(const GlobalOptions& global, std::vector<client::NamedFile> inputs,
                        const std::vector<client::NamedFile>& outputs);

// The first SIGINT, SIGTERM, SIGQUIT or SIGHUP then cancels the job, so that partial files are
// removed. The second ends the process. A SIGHUP that is ignored, as under nohup, stays ignored.
void CatchInterrupts();

bool Interrupted();

// begun: start of the deadline, which all calls of a command share. intact: returns whether the
// files are unchanged; false ends the job. May be empty. All must outlive the call.
client::JobOptions OptionsOf(const GlobalOptions& global, const CallFlags& flags, absl::Time begun,
                             JobTeller& teller, std::function<bool()> intact = nullptr);

// Time limit for outages before the job's call, equal to that of the call.
absl::Duration OutageOf(const CallFlags& flags);

absl::Duration DeadlineLeft(const CallFlags& flags, absl::Time begun);

// Files beside the results, if they are wanted.
struct SideFiles {
  std::optional<client::PendingFile> report, trace;
};

absl::StatusOr<SideFiles> CreateSideFiles(const CallFlags& flags);

void WarnOfRows(const GlobalOptions& global, const v1::Report& report);

struct DoneJob {
  std::string complete;  // path of the first result
  std::string what;      // "1,000 tokens"
  int attempts = 1;
  std::vector<std::string> written;  // if one is stdout, nothing else is printed there
};

// Commits the side files and prints the report. Call it after the results are complete. Returns the
// exit code.
int EndJob(const GlobalOptions& global, SideFiles& side, v1::Report& report, const DoneJob& done);

}  // namespace hilbert_ring::cli
