// hilbert-ring encode: slides from .npy files to embeddings in .npy files; hilbert-ring models.

#include "client/cpp/encode.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/encode_flags.h"
#include "client/cli/failure.h"
#include "client/cli/job_run.h"
#include "client/cli/json_message.h"
#include "client/cli/print_plan.h"
#include "client/cli/table.h"
#include "client/cpp/distinct_files.h"
#include "client/cpp/encode_files.h"
#include "client/cpp/npy.h"
#include "client/cpp/service.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::cli {
namespace {

using client::EncodeFiles;
using client::EncodeJob;
using client::NpyWriter;

absl::Status CheckPaths(const EncodeCommand& command) {
  return client::CheckDistinct({{"--tiles", command.tiles}, {"--coords", command.coords}},
                               {{"--out", command.out},
                                {"--attention-map", command.attention_map},
                                {"--report", command.call.report},
                                {"--trace", command.call.trace}});
}

struct Outputs {
  NpyWriter rows;
  std::optional<NpyWriter> map;
};

absl::StatusOr<Outputs> CreateOutputs(const EncodeCommand& command, const EncodeJob& job) {
  ASSIGN_OR_RETURN(NpyWriter rows,
                   NpyWriter::Create(command.out, client::NpyType::kFloat32, job.RowsShape()));
  Outputs outputs{std::move(rows), std::nullopt};
  if (!command.attention_map.empty()) {
    ASSIGN_OR_RETURN(outputs.map, NpyWriter::Create(command.attention_map,
                                                    client::NpyType::kFloat32, job.MapShape()));
  }
  return outputs;
}

absl::Status CheckIntact(const EncodeFiles& inputs, const Outputs& outputs) {
  RETURN_IF_ERROR(inputs.tiles.CheckIntact());
  if (inputs.coordinates) RETURN_IF_ERROR(inputs.coordinates->CheckIntact());
  RETURN_IF_ERROR(outputs.rows.CheckIntact());
  return outputs.map ? outputs.map->CheckIntact() : absl::OkStatus();
}

absl::Status Commit(Outputs& outputs) {
  RETURN_IF_ERROR(outputs.rows.Sync());
  if (outputs.map) RETURN_IF_ERROR(outputs.map->Sync());
  RETURN_IF_ERROR(outputs.rows.Commit());
  return outputs.map ? outputs.map->Commit() : absl::OkStatus();
}

// The job that the flags and the model's config make, but for what the files say.
absl::StatusOr<EncodeJob> JobOf(const EncodeCommand& command, const v1::Model& model) {
  ASSIGN_OR_RETURN(EncodeJob job, client::JobOf(model));
  ASSIGN_OR_RETURN(job.outputs, OutputsOf(command, job.config));
  job.slide_tiles = command.sequence_lengths;
  ASSIGN_OR_RETURN(job.compute, ParseDataType(command.compute));
  return job;
}

// As the job's call takes it.
absl::Duration OutageOf(const CallFlags& flags) {
  if (flags.outage_seconds) return absl::Seconds(*flags.outage_seconds);
  return flags.deadline_seconds ? absl::Seconds(*flags.deadline_seconds) : client::kOutageTimeout;
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

void PrintModels(const v1::ListModelsResponse& models) {
  if (models.models().empty()) {
    std::printf("no models\n");
    return;
  }
  std::vector<std::vector<std::string>> rows = {
      {"model", "version", "tile", "embedding", "layers", "weights", "workers", ""}};
  for (const v1::Model& model : models.models()) {
    rows.push_back({model.name(), model.digest().substr(0, 12), absl::StrCat(model.tile_dim()),
                    absl::StrCat(model.embed_dim()), absl::StrCat(model.layers()),
                    FormatBytes(static_cast<double>(model.weight_bytes())),
                    absl::StrCat(model.workers()), model.error()});
  }
  std::fputs(FormatTable(rows).c_str(), stdout);
}

int PlanJob(const GlobalOptions& global, const EncodeJob& job, int workers) {
  RetryTeller retries(global);
  const absl::StatusOr<v1::PlanResponse> plan = client::RequestEncodePlan(
      client::Connect(global.server, global.access), client::SpecOf(job), workers,
      {.retry = [&retries](const client::CallRetry& retry) {
        retries.Tell({.failure = retry.failure, .attempt = retry.attempt, .wait = retry.wait});
      }});
  if (!plan.ok()) return ServiceFailed(global, plan.status());
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", plan->json().c_str());
  } else {
    PrintPlan(job.tokens(), *plan);
  }
  return kExitOk;
}

}  // namespace

int RunEncode(const GlobalOptions& global, const EncodeCommand& command) {
  if (command.out.empty() && !command.plan) {
    return BadInput(global, absl::InvalidArgumentError("--out FILE is needed, or --plan"));
  }
  if (absl::Status status = CheckPaths(command); !status.ok()) return BadInput(global, status);
  const absl::StatusOr<v1::Model> model = client::RequestModel(
      client::Connect(global.server, global.access), command.model, OutageOf(command.call));
  if (!model.ok()) return ServiceFailed(global, model.status());
  absl::StatusOr<EncodeJob> job = JobOf(command, *model);
  if (!job.ok()) return BadInput(global, job.status());
  const absl::StatusOr<EncodeFiles> files =
      client::OpenEncode({.tiles = command.tiles, .coords = command.coords}, *job);
  if (!files.ok()) return BadInput(global, files.status());
  const client::EncodeInputs inputs = InputsOf(*job, *files);
  if (absl::Status status = client::CheckEncode(inputs); !status.ok()) {
    return BadInput(global, status);
  }
  if (command.plan) return PlanJob(global, *job, command.workers);
  CatchInterrupts();
  absl::StatusOr<Outputs> outputs = CreateOutputs(command, *job);
  if (!outputs.ok()) return BadInput(global, outputs.status());
  absl::StatusOr<SideFiles> side = SideFiles::Create(command.call);
  if (!side.ok()) return BadInput(global, side.status());
  std::optional<JobTeller> teller(std::in_place, global);
  absl::StatusOr<v1::Report> report = client::Encode(
      global.server, inputs,
      {.rows = outputs->rows.data(),
       .attention_map = outputs->map ? outputs->map->data() : std::span<std::byte>()},
      OptionsOf(global, command.call, *teller, [&] { return CheckIntact(*files, *outputs).ok(); }));
  const int attempts = teller->attempts();
  teller.reset();  // its line goes
  if (absl::Status intact = CheckIntact(*files, *outputs); !intact.ok()) {
    return ServiceFailed(global, intact);
  }
  if (!report.ok()) return ServiceFailed(global, report.status());
  WarnOfRows(global, *report);
  PrintNotes(global, {report->notes().begin(), report->notes().end()});
  if (absl::Status status = Commit(*outputs); !status.ok()) return ServiceFailed(global, status);
  std::string json;
  if (absl::Status status = side->Commit(*report, command.out, json); !status.ok()) {
    return ServiceFailed(global, status);
  }
  if (global.format == OutputFormat::kJson) {
    std::printf("%s\n", json.c_str());
  } else {
    PrintSummary(*report, absl::StrCat(FormatCount(job->tiles()), " tiles of ", job->model),
                 attempts);
  }
  return kExitOk;
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
