// hilbert-ring encode: slides from .npy files to embeddings in .npy files; hilbert-ring models.

#include "client/cpp/encode.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/file_job.h"
#include "client/cli/job_run.h"
#include "client/cli/json_message.h"
#include "client/cli/package_command.h"
#include "client/cli/table.h"
#include "client/cpp/by_reference.h"
#include "client/cpp/encode_files.h"
#include "client/cpp/npy.h"
#include "client/cpp/service.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/return_if_error.h"
#include "wire/control_characters.h"

namespace hilbert_ring::cli {
namespace {

using client::EncodeFiles;
using client::EncodeJob;

constexpr absl::Duration kLookAgain = absl::Milliseconds(20);

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

bool Pooled(const EncodeJob& job) { return job.outputs.pooling != Pooling::kNone; }

std::vector<JobOutput> OutputsOf(const EncodeCommand& command, const EncodeJob& job) {
  std::vector<JobOutput> outputs = {
      {.path = command.out, .shape = job.RowsShape(), .by_workers = !Pooled(job)}};
  if (!command.attention_map.empty()) {
    outputs.push_back({.path = command.attention_map, .shape = job.MapShape()});
  }
  return outputs;
}

absl::StatusOr<std::vector<int64_t>> StatesOf(const std::string& layers,
                                              const EncoderConfig& config) {
  std::vector<int64_t> states;
  if (layers == "last") return std::vector<int64_t>{config.layers};
  if (layers == "all") {
    for (int64_t state = 0; state <= config.layers; ++state) states.push_back(state);
    return states;
  }
  for (const auto number : absl::StrSplit(layers, ',')) {
    if (!absl::SimpleAtoi(number, &states.emplace_back())) {
      return absl::InvalidArgumentError(
          absl::StrCat("--layers: ", layers, ", must be all, last or numbers like 1,5,12"));
    }
    if (states.back() < 0 || states.back() > config.layers) {
      return absl::OutOfRangeError(absl::StrCat(
          "--layers: ", states.back(), " is no state of the model, must be 0 to ", config.layers));
    }
  }
  return states;
}

Pooling PoolingOf(const EncodeCommand& command, const EncoderConfig& config) {
  if (command.pool == "class") return Pooling::kClass;
  if (command.pool == "mean") return Pooling::kMean;
  if (command.pool == "none" || config.norm_eps == 0) return Pooling::kNone;
  return config.class_token ? Pooling::kClass : Pooling::kMean;
}

// Returns the outputs that the flags request. Defaults follow published slide encoders. The layer
// is the last; the model's final norm applies if only that layer is requested. Pooling is the class
// token's vector, the mean without a class token, or none if the model does not pool.
absl::StatusOr<EncoderOutputs> OutputsOf(const EncodeCommand& command,
                                         const EncoderConfig& config) {
  EncoderOutputs outputs;
  ASSIGN_OR_RETURN(outputs.states, StatesOf(command.layers, config));
  outputs.pooling = PoolingOf(command, config);
  const bool last_alone = std::ranges::all_of(
      outputs.states, [&config](int64_t state) { return state == config.layers; });
  const bool apply = command.final_norm.empty() ? last_alone : command.final_norm == "apply";
  outputs.final_norm = apply ? FinalNorm::kApplied : FinalNorm::kSkipped;
  if (!command.attention_map.empty()) {
    outputs.attention_map = {
        .layer = command.attention_map_layer.value_or(config.layers),
        .columns = command.attention_map_heads ? MapColumns::kHeads : MapColumns::kMeanOfHeads};
  } else if (command.attention_map_layer || command.attention_map_heads) {
    return absl::InvalidArgumentError(
        "--attention-map-layer and --attention-map-heads go with --attention-map FILE");
  }
  RETURN_IF_ERROR(CheckOutputs(config, outputs));
  return outputs;
}

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
      client::ReadPixels(*files.coordinates, first_row, values);
    };
  }
  inputs.sent = [&files](int64_t begin, int64_t end) { files.tiles.Release(begin, end); };
  return inputs;
}

absl::StatusOr<std::vector<client::TensorPath>> PathsOf(const EncodeCommand& command,
                                                        const EncodeJob& job,
                                                        const EncodeFiles& inputs) {
  std::vector<client::TensorPath> tensors = {{v1::TENSOR_TILES, command.tiles}};
  if (inputs.coordinates) {
    if (inputs.coordinates->type() != wire::NpyType::kFloat64 ||
        inputs.coordinates->fortran_order()) {
      return absl::FailedPreconditionError(
          absl::StrCat(command.coords,
                       ": coordinates must be float64 in C order; "
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

// A pooled output has a row for each slide.
void WarnOfOutput(const GlobalOptions& global, const EncodeJob& job, const v1::Report& report) {
  if (!Pooled(job)) return WarnOfRows(global, report);
  if (report.rows_not_finite() == 0) return;
  PrintWarning(
      global,
      absl::StrCat("the embeddings of ", report.rows_not_finite(), " of ", job.slide_tiles.size(),
                   " slides are not finite, the first of slide ", report.first_row_not_finite()));
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
                    FormatBytes(model.weight_bytes()), absl::StrCat(model.workers())});
  }
  std::fputs(FormatTable(rows).c_str(), stdout);
  std::fputs(errors.c_str(), stdout);
}

int PlanJob(const GlobalOptions& global, const EncodeJob& job, int workers) {
  RetryTeller retries(global);
  const absl::StatusOr<v1::PlanResponse> plan = client::RequestEncodePlan(
      client::Connect(global.server, global.access), client::SpecOf(job), workers,
      {.retry = [&retries](const client::CallRetry& retry) { retries.Tell(retry); }});
  if (!plan.ok()) return ServiceFailed(global, plan.status());
  return PrintPlan(global, job.tokens(), *plan);
}

// Returns the status of waitpid. An interrupt ends the child.
absl::StatusOr<int> WaitForSlide(pid_t child) {
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "--slide: waitpid");
    if (Interrupted()) kill(child, SIGTERM);
    absl::SleepFor(kLookAgain);
  }
  return status;
}

// A slide pipeline's file as .npy files in a folder of its own, which the command `slide` writes.
// The folder is removed at the end; without --slide there is no folder.
class SlideFiles {
 public:
  static absl::StatusOr<SlideFiles> Create(const SlideFlags& flags) {
    if (flags.file.empty()) return SlideFiles(std::filesystem::path());
    std::error_code error;
    std::string folder =
        (std::filesystem::temp_directory_path(error) / "hilbert-ring-slide-XXXXXX").string();
    if (error || mkdtemp(folder.data()) == nullptr) {
      return absl::ErrnoToStatus(error ? error.value() : errno,
                                 absl::StrCat("--slide: ", folder, " cannot be made (TMPDIR)"));
    }
    return SlideFiles(std::filesystem::path(folder));
  }
  SlideFiles(SlideFiles&& other) noexcept : folder_(std::exchange(other.folder_, {})) {}
  SlideFiles& operator=(SlideFiles&&) = delete;
  ~SlideFiles() {
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
  }

  // Replaces --slide by --tiles and --coords. Returns the exit code; errors were printed. A
  // model without positions has no coordinates. Catches interrupts.
  int Write(const GlobalOptions& global, const EncodeJob& job, EncodeCommand& command) const {
    const SlideFlags& flags = command.slide;
    if (flags.file.empty()) return kExitOk;
    command.tiles = folder_ / "tiles.npy";
    std::vector<std::string> words = {"hilbert-ring", "slide", "--tiles", command.tiles};
    if (const auto& position = job.config.position) {
      command.coords = folder_ / "coords.npy";
      words.insert(words.end(),
                   {"--coords", command.coords, absl::StrCat("--tile-size=", position->tile_size)});
    }
    for (const auto& [flag, value] : flags.options) {
      if (!value.empty()) words.push_back(absl::StrCat(flag, "=", value));
    }
    if (global.format == OutputFormat::kJson) words.push_back("--json");
    words.insert(words.end(), {"--", flags.file});
    CatchInterrupts();
    pid_t child = 0;
    if (const int failed = Spawn("/proc/self/exe", std::move(words), STDERR_FILENO, child)) {
      return ServiceFailed(global,
                           absl::ErrnoToStatus(failed, "--slide: the command slide cannot start"));
    }
    const absl::StatusOr<int> status = WaitForSlide(child);
    if (!status.ok()) return ServiceFailed(global, status.status());
    if (Interrupted()) return ServiceFailed(global, absl::CancelledError("interrupted"));
    if (WIFEXITED(*status)) return WEXITSTATUS(*status);
    return ServiceFailed(global,
                         absl::AbortedError(absl::StrCat("--slide: signal ", WTERMSIG(*status),
                                                         " ended the command slide")));
  }

 private:
  explicit SlideFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;
};

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
  const absl::StatusOr<SlideFiles> slide = SlideFiles::Create(command.slide);
  if (!slide.ok()) return BadInput(global, slide.status());
  if (const int code = slide->Write(global, *job, command); code != kExitOk) return code;
  const absl::StatusOr<EncodeFiles> files =
      client::OpenEncode({.tiles = command.tiles, .coords = command.coords}, *job);
  if (!files.ok()) return BadInput(global, files.status());
  const client::EncodeInputs inputs = InputsOf(*job, *files);
  if (absl::Status status = client::CheckEncode(inputs); !status.ok()) {
    return BadInput(global, status);
  }
  if (command.plan) return PlanJob(global, *job, command.workers);
  CatchInterrupts();
  const FileJob file_job{
      .call = command.call,
      .reference = command.reference,
      .paths = PathsOf(command, *job, *files),
      .outputs = OutputsOf(command, *job),
      .intact =
          [&] {
            RETURN_IF_ERROR(files->tiles.CheckIntact());
            return files->coordinates ? files->coordinates->CheckIntact() : absl::OkStatus();
          },
      .run =
          [&](const std::vector<v1::TensorFile>& named, const OutputFiles& outputs,
              const client::JobOptions& options) {
            const client::EncodeResults results{.rows = outputs.data(0),
                                                .attention_map = outputs.data(1)};
            return named.empty()
                       ? client::Encode(global.server, inputs, results, options)
                       : client::EncodeInFiles(global.server, inputs, named, results, options);
          },
      .warn =
          [&](const v1::Report& report) {
            WarnOfOutput(global, *job, report);
            PrintNotes(global, {report.notes().begin(), report.notes().end()});
          },
      .what = absl::StrCat(FormatCount(job->tiles()), " tiles of ", job->model)};
  return RunFileJob(global, file_job, begun);
}

int RunModels(const GlobalOptions& global) {
  return PrintAnswer(global, client::RequestModels(client::Connect(global.server, global.access)),
                     PrintModels);
}

}  // namespace hilbert_ring::cli
