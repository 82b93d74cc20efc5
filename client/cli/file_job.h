// A job on .npy files, whichever it is: by reference where it may be, else sent, its results
// written to files of this client's.
//
//   CatchInterrupts();
//   return RunFileJob(global, {.call = command.call, .outputs = OutputsOf(...), ...}, begun);
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/commands.h"
#include "client/cpp/by_reference.h"
#include "client/cpp/job_files.h"
#include "client/cpp/job_options.h"
#include "client/cpp/npy.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::cli {

// A file that results are written to.
struct JobOutput {
  std::string path;
  DataType dtype = DataType::kFloat32;
  wire::NpyType type = wire::NpyType::kFloat32;
  std::vector<int64_t> shape;
  bool by_workers = true;  // where the job is one by reference
};

// OUT, and LSE where it has a path.
std::vector<JobOutput> OutputsOf(const client::JobFiles& inputs, const std::string& out,
                                 const std::string& lse);

// Those that this client writes.
class OutputFiles {
 public:
  static absl::StatusOr<OutputFiles> Create(const std::vector<JobOutput>& outputs,
                                            bool by_reference = false);

  std::span<std::byte> data(size_t output) const;  // empty: not wanted, or the workers' to write

  absl::Status CheckIntact() const;

  // Whatever has a name is on disk.
  absl::Status Commit();

 private:
  std::vector<std::optional<client::NpyWriter>> files_;  // by output
};

struct FileJob {
  const CallFlags& call;
  const ReferenceFlags& reference;
  absl::StatusOr<std::vector<client::TensorPath>> paths;  // an error: they cannot be named
  std::vector<JobOutput> outputs;                         // reports name the first
  std::function<absl::Status()> intact;  // whether the inputs, which are sent, are as they were
  // files: by reference; empty: all tensors are sent.
  std::function<absl::StatusOr<v1::Report>(const std::vector<v1::TensorFile>& files,
                                           const OutputFiles& outputs,
                                           const client::JobOptions& options)>
      run;
  std::function<void(const v1::Report&)> warn;         // of its results
  std::function<std::string(const v1::Report&)> what;  // "1,000 tokens"
};

// begun: since when the deadline runs. Returns the exit code; what is wrong has been printed.
int RunFileJob(const GlobalOptions& global, const FileJob& job, absl::Time begun);

}  // namespace hilbert_ring::cli
