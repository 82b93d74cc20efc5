// hilbert-ring encode: slides from .npy files to embeddings in .npy files; hilbert-ring models.

#include "client/cpp/encode.h"

#include <cstdio>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/commands.h"
#include "client/cli/encode_flags.h"
#include "client/cli/failure.h"
#include "client/cli/file_flags.h"
#include "client/cli/job_run.h"
#include "client/cli/json_message.h"
#include "client/cli/print_plan.h"
#include "client/cli/slide_files.h"
#include "client/cli/table.h"
#include "client/cpp/by_reference.h"
#include "client/cpp/encode_files.h"
#include "client/cpp/npy.h"
#include "client/cpp/service.h"
#include "client/cpp/steady_clock.h"
#include "client/cpp/written_file.h"
#include "engine/base/return_if_error.h"
#include "wire/control_characters.h"

namespace hilbert_ring::cli {
namespace {

using client::EncodeFiles;
using client::EncodeJob;
using client::NpyWriter;

absl::Status CheckPaths(const GlobalOptions& global, const EncodeCommand& command) {
  for (const std::string* const path : {&command.out, &command.attention_map}) {
    if (!path->empty()) RETURN_IF_ERROR(client::CheckNpyPlace(*path));
  }
  return CheckFiles(global,
                    {{"--tiles", command.tiles},
                     {"--coords", command.coords},
                     {"--slide", command.slide.file},
                     {kPatchesFlag, command.slide.options.at(kPatchesFlag)}},
                    {{"--out", command.out},
                     {"--attention-map", command.attention_map},
                     {"--report", command.call.report},
                     {"--trace", command.call.trace}});
}

// What this client writes itself.
struct Outputs {
  std::optional<NpyWriter> rows, map;
};

bool Pooled(const EncodeJob& job) { return job.outputs.pooling != Pooling::kNone; }

// files: the job's by reference, whose outputs the workers write; empty: all outputs come here.
absl::StatusOr<Outputs> CreateOutputs(const EncodeCommand& command, const EncodeJob& job,
                                      const std::vector<v1::TensorFile>& files) {
  Outputs outputs;
  if (files.empty() || Pooled(job)) {
    ASSIGN_OR_RETURN(outputs.rows,
                     NpyWriter::Create(command.out, wire::NpyType::kFloat32, job.RowsShape()));
  }
  if (files.empty() && !command.attention_map.empty()) {
    ASSIGN_OR_RETURN(outputs.map, NpyWriter::Create(command.attention_map, wire::NpyType::kFloat32,
                                                    job.MapShape()));
  }
  return outputs;
}

// files: as of CreateOutputs. By reference the service looks after the inputs, and says which of
// them changed.
absl::Status CheckIntact(const EncodeFiles& inputs, const std::vector<v1::TensorFile>& files,
                         const Outputs& outputs) {
  if (files.empty()) {
    RETURN_IF_ERROR(inputs.tiles.CheckIntact());
    if (inputs.coordinates) RETURN_IF_ERROR(inputs.coordinates->CheckIntact());
  }
  for (const std::optional<NpyWriter>* const file : {&outputs.rows, &outputs.map}) {
    if (*file) RETURN_IF_ERROR((*file)->CheckIntact());
  }
  return absl::OkStatus();
}

absl::Status Commit(Outputs& outputs) {
  for (std::optional<NpyWriter>* const file : {&outputs.rows, &outputs.map}) {
    if (*file) RETURN_IF_ERROR((*file)->Sync());
  }
  for (std::optional<NpyWriter>* const file : {&outputs.rows, &outputs.map}) {
    if (*file) RETURN_IF_ERROR((*file)->Commit());
  }
  return absl::OkStatus();
}

// The job that the flags and the model's config make, but for what the files say.
absl::StatusOr<EncodeJob> JobOf(const EncodeCommand& command, const v1::Model& model) {
  ASSIGN_OR_RETURN(EncodeJob job, client::JobOf(model));
  ASSIGN_OR_RETURN(job.outputs, OutputsOf(command, job.config));
  job.slide_tiles = command.sequence_lengths;
  ASSIGN_OR_RETURN(job.compute, ParseDataType(command.compute));
  return job;
}

client::EncodeInputs InputsOf(const EncodeJob& job, const EncodeFiles& files) {
  client::EncodeInputs inputs{.job = job, .tiles = files.tiles.span()};
  if (files.coordinates) {
    inputs.coordinates = [&files](int64_t first_row, std::span<double> values) {
      files.coordinates->Read(first_row, values);
    };
  }
  inputs.sent = [&files](int64_t begin, int64_t end) { files.tiles.Release(begin, end); };
  return inputs;
}

// What would be named where the job is one by reference.
absl::StatusOr<std::vector<client::TensorPath>> PathsOf(const EncodeCommand& command,
                                                        const EncodeJob& job,
                                                        const EncodeFiles& inputs) {
  std::vector<client::TensorPath> tensors = {{v1::TENSOR_TILES, command.tiles}};
  if (inputs.coordinates) {
    if (!inputs.coordinates->IsAsSent()) {
      return absl::FailedPreconditionError(
          absl::StrCat(command.coords,
                       ": by reference coordinates are float64 in C order, these are others; "
                       "save them with numpy.ascontiguousarray(coords, dtype=\"f8\")"));
    }
    tensors.push_back({v1::TENSOR_TILE_COORDS, command.coords});
  }
  if (!Pooled(job)) tensors.push_back({v1::TENSOR_STATES, command.out});
  if (!command.attention_map.empty()) {
    tensors.push_back({v1::TENSOR_ATTENTION_MAP, command.attention_map});
  }
  return tensors;
}

CallResult Call(const GlobalOptions& global, const EncodeCommand& command, absl::Time begun,
                const EncodeJob& job, const EncodeFiles& inputs,
                const std::vector<v1::TensorFile>& files, const Outputs& outputs) {
  JobTeller teller(global);
  const client::EncodeResults results{
      .rows = outputs.rows ? outputs.rows->data() : std::span<std::byte>(),
      .attention_map = outputs.map ? outputs.map->data() : std::span<std::byte>()};
  client::JobOptions options = OptionsOf(global, command.call, begun, teller,
                                         [&] { return CheckIntact(inputs, files, outputs).ok(); });
  if (!files.empty()) {
    options.final = [&](const absl::Status& failure) {
      return SendsAfter(command.reference, failure);
    };
  }
  const client::EncodeInputs all = InputsOf(job, inputs);
  absl::StatusOr<v1::Report> report =
      files.empty() ? client::Encode(global.server, all, results, options)
                    : client::EncodeInFiles(global.server, all, files, results, options);
  return {std::move(report), teller.attempts()};
}

// A pooled output has a row for each slide.
void WarnOfOutput(const GlobalOptions& global, const EncodeJob& job, const v1::Report& report) {
  if (!Pooled(job)) return WarnOfRows(global, report);
  if (report.rows_not_finite() == 0) return;
  PrintWarning(
      global,
      absl::StrCat("the embeddings of ", report.rows_not_finite(), " of ", job.slide_tiles.size(),
                   " slides are not finite, the first of slide ", report.first_row_not_finite()));
}

// Whatever has a name is on disk.
int End(const GlobalOptions& global, const EncodeCommand& command, const EncodeJob& job,
        Outputs& outputs, SideFiles& side, CallResult result) {
  absl::StatusOr<v1::Report>& report = result.report;
  if (!report.ok()) return ServiceFailed(global, report.status());
  WarnOfOutput(global, job, *report);
  PrintNotes(global, {report->notes().begin(), report->notes().end()});
  if (absl::Status status = Commit(outputs); !status.ok()) return ServiceFailed(global, status);
  std::string json;
  if (absl::Status status = side.Commit(*report, command.out, json); !status.ok()) {
    return ServiceFailed(global, status);
  }
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", json.c_str());
  } else if (!TakeStdout({command.call.report, command.call.trace})) {
    PrintSummary(*report, absl::StrCat(FormatCount(job.tiles()), " tiles of ", job.model),
                 result.attempts);
  }
  return kExitOk;
}

// Those that the workers write.
std::vector<client::WrittenFile> WrittenOutputs(const EncodeCommand& command,
                                                const EncodeJob& job) {
  std::vector<client::WrittenFile> files;
  if (!Pooled(job)) {
    files.push_back(client::NoteBefore(command.out, DataType::kFloat32, job.RowsShape()));
  }
  if (!command.attention_map.empty()) {
    files.push_back(client::NoteBefore(command.attention_map, DataType::kFloat32, job.MapShape()));
  }
  return files;
}

// By reference where files are named, else the tensors are sent. Nothing where they are to be sent
// after all; attempts: made before, to which this adds.
std::optional<int> RunJob(const GlobalOptions& global, const EncodeCommand& command,
                          absl::Time begun, const EncodeJob& job, const EncodeFiles& inputs,
                          const std::vector<v1::TensorFile>& files, SideFiles& side,
                          int& attempts) {
  absl::StatusOr<Outputs> outputs = CreateOutputs(command, job, files);
  if (!outputs.ok()) return BadInput(global, outputs.status());
  std::vector<client::WrittenFile> written;
  if (!files.empty()) written = WrittenOutputs(command, job);
  CallResult result = Call(global, command, begun, job, inputs, files, *outputs);
  for (const client::WrittenFile& file : written) {
    if (!result.report.ok()) break;
    if (absl::Status status = client::CheckWritten(file); !status.ok()) result.report = status;
  }
  result.attempts = attempts += result.attempts;
  if (absl::Status intact = CheckIntact(inputs, files, *outputs); !intact.ok()) {
    return ServiceFailed(global, intact);
  }
  const bool sends = !files.empty() && SendsAfter(command.reference, result.report.status());
  if (!sends) return End(global, command, job, *outputs, side, std::move(result));
  PrintWarning(global, absl::StrCat("tensors are sent, since the service cannot use the files: ",
                                    result.report.status().message()));
  return std::nullopt;
}

void PrintModels(const v1::ListModelsResponse& models) {
  if (models.models().empty()) {
    std::printf("no models\n");
    return;
  }
  std::vector<std::vector<std::string>> rows = {
      {"model", "version", "tile", "embedding", "layers", "weights", "workers"}};
  std::string errors;
  for (const v1::Model& model : models.models()) {
    if (!model.error().empty()) {
      rows.push_back({model.name(), "unusable"});
      absl::StrAppend(&errors, wire::EscapeControls(model.error()), "\n");
      continue;
    }
    rows.push_back({model.name(), model.digest().substr(0, 12), absl::StrCat(model.tile_dim()),
                    absl::StrCat(model.embed_dim()), absl::StrCat(model.layers()),
                    FormatBytes(static_cast<double>(model.weight_bytes())),
                    absl::StrCat(model.workers())});
  }
  std::fputs(FormatTable(rows).c_str(), stdout);
  std::fputs(errors.c_str(), stdout);
}

int PlanJob(const GlobalOptions& global, const EncodeJob& job, int workers) {
  RetryTeller retries(global);
  const absl::StatusOr<v1::PlanResponse> plan = client::RequestEncodePlan(
      client::Connect(global.server, global.access), client::SpecOf(job), workers,
      {.retry = [&retries](const client::CallRetry& retry) {
        retries.Tell({.failure = retry.failure, .attempt = retry.attempt, .wait = retry.wait});
      }});
  if (!plan.ok()) return ServiceFailed(global, plan.status());
  if (global.format != OutputFormat::kJson) {
    PrintPlan(job.tokens(), *plan);
    return kExitOk;
  }
  const absl::StatusOr<std::string> json = CheckedJson(plan->json());
  if (!json.ok()) return ServiceFailed(global, json.status());
  std::printf("%s\n", json->c_str());
  return kExitOk;
}

// --slide becomes --tiles and --coords. The exit code; what is wrong has been printed.
int ReadSlide(const GlobalOptions& global, const EncodeJob& job, SlideFiles& slide,
              EncodeCommand& command) {
  if (command.slide.file.empty()) return kExitOk;
  std::optional<int64_t> tile_size;
  if (job.config.position) tile_size = job.config.position->tile_size;
  const int code = slide.Write(global, command.slide, tile_size);
  command.tiles = slide.tiles();
  command.coords = slide.coords();
  return code;
}

}  // namespace

int RunEncode(const GlobalOptions& global, const EncodeCommand& given) {
  EncodeCommand command = given;
  if (command.out.empty() && !command.plan) {
    return BadInput(global, absl::InvalidArgumentError("--out FILE is needed, or --plan"));
  }
  if (command.tiles.empty() && command.slide.file.empty()) {
    return BadInput(global, absl::InvalidArgumentError("--tiles FILE is needed, or --slide FILE"));
  }
  if (absl::Status status = CheckPaths(global, command); !status.ok())
    return BadInput(global, status);
  const absl::Time begun = client::SteadyNow();
  const absl::StatusOr<v1::Model> model = client::RequestModel(
      client::Connect(global.server, global.access), command.model,
      {.outage_timeout = OutageOf(command.call), .deadline = DeadlineLeft(command.call, begun)});
  if (!model.ok()) return ServiceFailed(global, model.status());
  absl::StatusOr<EncodeJob> job = JobOf(command, *model);
  if (!job.ok()) return BadInput(global, job.status());
  absl::StatusOr<SlideFiles> slide = SlideFiles::Create(command.slide);
  if (!slide.ok()) return BadInput(global, slide.status());
  if (const int code = ReadSlide(global, *job, *slide, command); code != kExitOk) return code;
  const absl::StatusOr<EncodeFiles> files =
      client::OpenEncode({.tiles = command.tiles, .coords = command.coords}, *job);
  if (!files.ok()) return BadInput(global, files.status());
  if (absl::Status status = client::CheckEncode(InputsOf(*job, *files)); !status.ok()) {
    return BadInput(global, status);
  }
  if (command.plan) return PlanJob(global, *job, command.workers);
  CatchInterrupts();
  const auto named =
      NameTensors(global, command.call, begun, command.reference, PathsOf(command, *job, *files));
  if (!named.ok()) return ServiceFailed(global, named.status());
  absl::StatusOr<SideFiles> side = SideFiles::Create(command.call);
  if (!side.ok()) return BadInput(global, side.status());
  int attempts = 0;
  const std::optional<int> ended =
      RunJob(global, command, begun, *job, *files, *named, *side, attempts);
  return ended ? *ended : *RunJob(global, command, begun, *job, *files, {}, *side, attempts);
}

int RunModels(const GlobalOptions& global) {
  const absl::StatusOr<v1::ListModelsResponse> models =
      client::RequestModels(client::Connect(global.server, global.access));
  if (!models.ok()) return ServiceFailed(global, models.status());
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", MessageAsJson(*models).c_str());
  } else {
    PrintModels(*models);
  }
  return kExitOk;
}

}  // namespace hilbert_ring::cli
