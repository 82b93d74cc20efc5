// hilbert-ring attend: one job from .npy files to .npy files.

#include "client/cpp/attend.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/file_job.h"
#include "client/cli/job_run.h"
#include "client/cli/table.h"
#include "client/cpp/by_reference.h"
#include "client/cpp/job_files.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/spec_notes.h"

namespace hilbert_ring::cli {
namespace {

using client::JobFiles;

absl::StatusOr<std::vector<client::TensorPath>> PathsOf(const AttendCommand& command,
                                                        const JobFiles& inputs) {
  std::vector<client::TensorPath> tensors = {{v1::TENSOR_Q, command.job.q},
                                             {v1::TENSOR_K, command.job.k},
                                             {v1::TENSOR_V, command.job.v},
                                             {v1::TENSOR_OUT, command.out}};
  if (!command.lse.empty()) tensors.push_back({v1::TENSOR_LSE, command.lse});
  if (inputs.job.coordinates) {
    if (inputs.job.coords_path.empty()) {
      return absl::FailedPreconditionError("coordinates are in the spec, must be in a file");
    }
    tensors.push_back({v1::TENSOR_COORDS, inputs.job.coords_path});
  }
  if (inputs.job.bias_coordinates) {
    tensors.push_back({v1::TENSOR_BIAS_COORDS, command.job.bias_coords});
  }
  return tensors;
}

absl::Status CheckPaths(const GlobalOptions& global, const AttendCommand& command,
                        const std::string& coords_path) {
  for (const std::string* const path : {&command.out, &command.lse}) {
    if (!path->empty()) RETURN_IF_ERROR(client::CheckNpyPlace(*path));
  }
  return CheckFiles(global,
                    {{"--spec", command.job.spec},
                     {"--coords", coords_path},
                     {"--bias-coords", command.job.bias_coords},
                     {"--q", command.job.q},
                     {"--k", command.job.k},
                     {"--v", command.job.v}},
                    {{"--out", command.out},
                     {"--lse", command.lse},
                     {"--report", command.call.report},
                     {"--trace", command.call.trace}});
}

absl::Status CheckGiven(const AttendCommand& command) {
  for (const auto& [flag, path] :
       {std::pair("--q", &command.job.q), std::pair("--k", &command.job.k),
        std::pair("--v", &command.job.v)}) {
    if (path->empty()) return absl::InvalidArgumentError(absl::StrCat(flag, " is required"));
  }
  const StreamFlags& stream = command.stream;
  const char* const of_streams = !stream.qkv.empty()       ? "--qkv"
                                 : stream.follow           ? "--follow"
                                 : stream.epoch_tokens > 0 ? "--epoch"
                                                           : nullptr;
  if (of_streams == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(of_streams, " needs --stream"));
}

absl::StatusOr<v1::Report> Call(const GlobalOptions& global, const JobFiles& files,
                                const OutputFiles& outputs, const client::JobOptions& options) {
  client::AttendInputs inputs = client::InputsOf(files);
  inputs.sent = [&files](v1::Tensor tensor, int64_t begin, int64_t end) {
    (tensor == v1::TENSOR_Q   ? files.q
     : tensor == v1::TENSOR_K ? files.k
                              : files.v)
        .Release(begin, end);
  };
  return client::Attend(global.server, inputs, {.out = outputs.data(0), .lse = outputs.data(1)},
                        options);
}

}  // namespace

int RunAttend(const GlobalOptions& global, const AttendCommand& command) {
  if (command.stream.stream) return RunAttendStream(global, command);
  if (absl::Status given = CheckGiven(command); !given.ok()) return BadInput(global, given);
  const absl::StatusOr<client::JobSource> source = SourceOf(global, command.job);
  if (!source.ok()) return BadInput(global, source.status());
  const absl::StatusOr<JobFiles> inputs = client::OpenJob(*source);
  if (!inputs.ok()) return BadInput(global, inputs.status());
  absl::Status distinct = CheckPaths(global, command, inputs->job.coords_path);
  if (!distinct.ok()) return BadInput(global, distinct);
  PrintNotes(global, NotesOn(inputs->job.spec));
  CatchInterrupts();
  const FileJob job{.call = command.call,
                    .reference = command.reference,
                    .paths = PathsOf(command, *inputs),
                    .outputs = OutputsOf(*inputs, command.out, command.lse),
                    .intact = [&] { return client::CheckIntact(*inputs); },
                    .run =
                        [&](const std::vector<v1::TensorFile>& files, const OutputFiles& outputs,
                            const client::JobOptions& options) {
                          return files.empty()
                                     ? Call(global, *inputs, outputs, options)
                                     : client::AttendInFiles(global.server, inputs->job.spec, files,
                                                             options);
                        },
                    .warn = [&](const v1::Report& report) { WarnOfRows(global, report); },
                    .what = absl::StrCat(FormatCount(inputs->job.spec.tokens), " tokens")};
  return RunFileJob(global, job, client::SteadyNow());
}

}  // namespace hilbert_ring::cli
