// hilbert-ring attend: one job from .npy files to .npy files.

#include "client/cpp/attend.h"

#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/file_flags.h"
#include "client/cli/job_run.h"
#include "client/cli/table.h"
#include "client/cpp/by_reference.h"
#include "client/cpp/job_files.h"
#include "client/cpp/npy.h"
#include "client/cpp/steady_clock.h"
#include "client/cpp/written_file.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/spec_notes.h"

namespace hilbert_ring::cli {
namespace {

using client::JobFiles;
using client::NpyWriter;

struct OutputFiles {
  NpyWriter out;
  std::optional<NpyWriter> lse;
};

absl::StatusOr<OutputFiles> CreateOutputs(const AttendCommand& command, const JobFiles& inputs) {
  const JobSpec& spec = inputs.job.spec;
  ASSIGN_OR_RETURN(NpyWriter out,
                   NpyWriter::Create(command.out, client::OutputType(spec, inputs.q.type()),
                                     client::TensorShape(spec, v1::TENSOR_OUT)));
  OutputFiles outputs{std::move(out)};
  if (!command.lse.empty()) {
    ASSIGN_OR_RETURN(outputs.lse, NpyWriter::Create(command.lse, wire::NpyType::kFloat32,
                                                    client::TensorShape(spec, v1::TENSOR_LSE)));
  }
  return outputs;
}

absl::Status CheckIntact(const JobFiles& inputs, const OutputFiles& outputs) {
  RETURN_IF_ERROR(client::CheckIntact(inputs));
  RETURN_IF_ERROR(outputs.out.CheckIntact());
  return outputs.lse ? outputs.lse->CheckIntact() : absl::OkStatus();
}

CallResult Call(const GlobalOptions& global, const AttendCommand& command, absl::Time begun,
                const JobFiles& files, const OutputFiles& outputs) {
  JobTeller teller(global);
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
  const client::JobOptions options = OptionsOf(global, command.call, begun, teller,
                                               [&] { return CheckIntact(files, outputs).ok(); });
  absl::StatusOr<v1::Report> report =
      client::Attend(global.server, inputs,
                     {.out = outputs.out.data(),
                      .lse = outputs.lse ? outputs.lse->data() : std::span<std::byte>()},
                     options);
  return {std::move(report), teller.attempts()};
}

// What would be named where the job is one by reference.
absl::StatusOr<std::vector<client::TensorPath>> PathsOf(const AttendCommand& command,
                                                        const JobFiles& inputs) {
  std::vector<client::TensorPath> tensors = {{v1::TENSOR_Q, command.job.q},
                                             {v1::TENSOR_K, command.job.k},
                                             {v1::TENSOR_V, command.job.v},
                                             {v1::TENSOR_OUT, command.out}};
  if (!command.lse.empty()) tensors.push_back({v1::TENSOR_LSE, command.lse});
  if (inputs.job.coordinates) {
    if (inputs.job.coords_path.empty()) {
      return absl::FailedPreconditionError("coordinates stand in the spec, not in a file");
    }
    tensors.push_back({v1::TENSOR_COORDS, inputs.job.coords_path});
  }
  return tensors;
}

CallResult CallByReference(const GlobalOptions& global, const AttendCommand& command,
                           absl::Time begun, const JobSpec& spec,
                           const std::vector<v1::TensorFile>& files) {
  std::vector<client::WrittenFile> outputs = {
      client::NoteBefore(command.out, spec.dtype, client::TensorShape(spec, v1::TENSOR_OUT))};
  if (!command.lse.empty()) {
    outputs.push_back(client::NoteBefore(command.lse, DataType::kFloat32,
                                         client::TensorShape(spec, v1::TENSOR_LSE)));
  }
  JobTeller teller(global);
  // The service looks after the files, and says which of them changed.
  client::JobOptions options = OptionsOf(global, command.call, begun, teller, [] { return true; });
  options.final = [&](const absl::Status& failure) {
    return SendsAfter(command.reference, failure);
  };
  absl::StatusOr<v1::Report> report = client::AttendInFiles(global.server, spec, files, options);
  for (const client::WrittenFile& output : outputs) {
    if (!report.ok()) break;
    if (absl::Status written = client::CheckWritten(output); !written.ok()) report = written;
  }
  return {std::move(report), teller.attempts()};
}

absl::Status CheckPaths(const GlobalOptions& global, const AttendCommand& command,
                        const std::string& coords_path) {
  for (const std::string* const path : {&command.out, &command.lse}) {
    if (!path->empty()) RETURN_IF_ERROR(client::CheckNpyPlace(*path));
  }
  return CheckFiles(global,
                    {{"--spec", command.job.spec},
                     {"--coords", coords_path},
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
  return absl::InvalidArgumentError(absl::StrCat(of_streams, " is for --stream"));
}

// Whatever has a name is on disk.
absl::Status Commit(OutputFiles& outputs) {
  RETURN_IF_ERROR(outputs.out.Sync());
  if (outputs.lse) {
    RETURN_IF_ERROR(outputs.lse->Sync());
  }
  RETURN_IF_ERROR(outputs.out.Commit());
  return outputs.lse ? outputs.lse->Commit() : absl::OkStatus();
}

// The outputs have their names, unless the job failed.
int End(const GlobalOptions& global, const AttendCommand& command, SideFiles side,
        CallResult result) {
  absl::StatusOr<v1::Report>& report = result.report;
  if (!report.ok()) return ServiceFailed(global, report.status());
  WarnOfRows(global, *report);
  std::string json;
  if (absl::Status status = side.Commit(*report, command.out, json); !status.ok()) {
    return ServiceFailed(global, status);
  }
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", json.c_str());
  } else if (!TakeStdout({command.call.report, command.call.trace})) {
    PrintSummary(*report, absl::StrCat(FormatCount(report->tokens()), " tokens"), result.attempts);
  }
  return kExitOk;
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
  const absl::Time begun = client::SteadyNow();
  const auto files =
      NameTensors(global, command.call, begun, command.reference, PathsOf(command, *inputs));
  if (!files.ok()) return ServiceFailed(global, files.status());
  absl::StatusOr<SideFiles> side = SideFiles::Create(command.call);
  if (!side.ok()) return BadInput(global, side.status());
  int attempts = 0;  // by reference
  if (!files->empty()) {
    CallResult result = CallByReference(global, command, begun, inputs->job.spec, *files);
    if (!SendsAfter(command.reference, result.report.status()))
      return End(global, command, *std::move(side), std::move(result));
    PrintWarning(global, absl::StrCat("tensors are sent, since the service cannot use the files: ",
                                      result.report.status().message()));
    attempts = result.attempts;
  }
  absl::StatusOr<OutputFiles> outputs = CreateOutputs(command, *inputs);
  if (!outputs.ok()) return BadInput(global, outputs.status());
  CallResult result = Call(global, command, begun, *inputs, *outputs);
  result.attempts += attempts;
  absl::Status intact = CheckIntact(*inputs, *outputs);
  if (!intact.ok()) return ServiceFailed(global, intact);
  if (result.report.ok()) {
    if (absl::Status status = Commit(*outputs); !status.ok()) return ServiceFailed(global, status);
  }
  return End(global, command, *std::move(side), std::move(result));
}

}  // namespace hilbert_ring::cli
