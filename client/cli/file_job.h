// Runs a job on .npy files. The tensors go by path if the service takes the files, else as
// messages; this client then writes the results.
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

struct JobOutput {
  std::string path;
  DataType dtype = DataType::kFloat32;
  wire::NpyType type = wire::NpyType::kFloat32;
  std::vector<int64_t> shape;
  bool by_workers = true;  // if tensors pass by path
};

std::vector<JobOutput> OutputsOf(const client::JobFiles& inputs, const std::string& out,
                                 const std::string& lse);

enum class Route { kSent, kByPath };

class OutputFiles {
 public:
  static absl::StatusOr<OutputFiles> Create(const std::vector<JobOutput>& outputs, Route route);

  std::span<std::byte> data(size_t output) const;  // empty: not wanted, or written by workers

  absl::Status CheckIntact() const;

  // Syncs each file before the first gets its name.
  absl::Status Commit();

 private:
  std::vector<std::optional<client::NpyWriter>> files_;
};

struct FileJob {
  const CallFlags& call;
  const ReferenceFlags& reference;
  absl::StatusOr<std::vector<client::TensorPath>> paths;  // an error: they cannot pass by path
  std::vector<JobOutput> outputs;                         // the first is named in messages
  std::function<absl::Status()> intact;                   // checks that sent inputs are unchanged
  // files: passed by path; empty: all tensors are sent.
  std::function<absl::StatusOr<v1::Report>(const std::vector<v1::TensorFile>& files,
                                           const OutputFiles& outputs,
                                           const client::JobOptions& options)>
      run;
  std::function<void(const v1::Report&)> warn;
  std::string what;  // "1,000 tokens"
};

// begun: start of the deadline. Returns the exit code; errors were printed.
int RunFileJob(const GlobalOptions& global, const FileJob& job, absl::Time begun);

}  // namespace hilbert_ring::cli
