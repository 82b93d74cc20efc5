// hilbert-ring attend-many: small jobs, a line of JSON each, many in a call.

#include "client/cpp/attend_many.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/file_job.h"
#include "client/cli/job_run.h"
#include "client/cli/json_message.h"
#include "client/cli/table.h"
#include "client/cpp/distinct_files.h"
#include "client/cpp/errors.h"
#include "client/cpp/job_files.h"
#include "client/cpp/steady_clock.h"
#include "client/cpp/text_file.h"
#include "engine/base/return_if_error.h"
#include "engine/base/saturating.h"
#include "engine/spec/watched_json.h"
#include "nlohmann/json.hpp"
#include "wire/control_characters.h"

namespace hilbert_ring::cli {
namespace {

// All files of a call's jobs are open at once.
constexpr size_t kJobsOfACall = 128;

constexpr size_t kMaxJobsBytes = size_t{256} << 20;

struct Line {
  int64_t number = 0;
  JobFlags job;
  std::string out, lse, job_id;
};

struct OpenedJob {
  client::JobFiles files;
  OutputFiles outputs;
};

absl::Status OfLine(const Line& line, const absl::Status& status) {
  const absl::Status told = WithWords(status);
  return client::WithMessage(told, absl::StrCat("line ", line.number, ": ", told.message()));
}

absl::Status Take(const nlohmann::json& text, Line& line) {
  if (!text.is_object()) return absl::InvalidArgumentError("expected an object");
  for (const auto& [name, value] : text.items()) {
    if (name == "spec" && value.is_object()) {
      line.job.fields.merge_patch(value);
      continue;
    }
    std::string* const path = name == "q"             ? &line.job.q
                              : name == "k"           ? &line.job.k
                              : name == "v"           ? &line.job.v
                              : name == "coords"      ? &line.job.coords
                              : name == "bias_coords" ? &line.job.bias_coords
                              : name == "out"         ? &line.out
                              : name == "lse"         ? &line.lse
                              : name == "job_id"      ? &line.job_id
                                                      : nullptr;
    if (path == nullptr || !value.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name,
                       ": expected q, k, v, coords, bias_coords, out, lse and job_id, as strings, "
                       "and spec, as object"));
    }
    *path = value.get<std::string>();
  }
  for (const auto& [name, path] : {std::pair("q", &line.job.q), std::pair("k", &line.job.k),
                                   std::pair("v", &line.job.v), std::pair("out", &line.out)}) {
    if (path->empty()) return absl::InvalidArgumentError(absl::StrCat(name, " is required"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Line>> ReadLines(const ManyCommand& command) {
  ASSIGN_OR_RETURN(std::string whole,
                   client::ReadText(command.jobs, {.bytes = kMaxJobsBytes,
                                                   .words = "the limit of a file of jobs"}));
  std::vector<Line> lines;
  std::istringstream from(std::move(whole));
  std::string text;
  for (int64_t number = 1; std::getline(from, text); ++number) {
    if (absl::StripAsciiWhitespace(text).empty()) continue;
    Line line{.number = number, .job = command.job};
    const absl::StatusOr<nlohmann::json> json = ParseWatchedJson(text, "the job");
    const absl::Status status = json.ok() ? Take(*json, line) : json.status();
    if (!status.ok()) return OfLine(line, status);
    lines.push_back(std::move(line));
  }
  if (lines.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(client::TextName(command.jobs), ": has no jobs, expected a line each"));
  }
  return lines;
}

absl::Status CheckPaths(const GlobalOptions& global, const ManyCommand& command,
                        const std::vector<Line>& lines) {
  std::vector<client::NamedFile> inputs = {{"the jobs", command.jobs == "-" ? "" : command.jobs},
                                           {"--spec", command.job.spec}};
  std::vector<client::NamedFile> outputs;
  for (const Line& line : lines) {
    const std::string at = absl::StrCat("line ", line.number, ": ");
    inputs.insert(inputs.end(), {{at + "q", line.job.q},
                                 {at + "k", line.job.k},
                                 {at + "v", line.job.v},
                                 {at + "coords", line.job.coords},
                                 {at + "bias_coords", line.job.bias_coords}});
    outputs.insert(outputs.end(), {{at + "out", line.out}, {at + "lse", line.lse}});
  }
  return CheckFiles(global, std::move(inputs), outputs);
}

absl::StatusOr<OpenedJob> Open(const GlobalOptions& global, const Line& line) {
  ASSIGN_OR_RETURN(const client::JobSource source, SourceOf(global, line.job));
  ASSIGN_OR_RETURN(client::JobFiles files, client::OpenJob(source));
  ASSIGN_OR_RETURN(OutputFiles outputs,
                   OutputFiles::Create(OutputsOf(files, line.out, line.lse), Route::kSent));
  return OpenedJob{std::move(files), std::move(outputs)};
}

client::SmallJob JobOf(const Line& line, const OpenedJob& opened) {
  return {.inputs = client::InputsOf(opened.files),
          .outputs = {.out = opened.outputs.data(0), .lse = opened.outputs.data(1)},
          .job_id = line.job_id};
}

struct Total {
  int64_t jobs = 0, failed = 0, tokens = 0;
};

void Tell(const GlobalOptions& global, const Line& line, const absl::StatusOr<v1::Report>& report,
          Total& total) {
  ++total.jobs;
  if (!report.ok()) {
    ++total.failed;
    ServiceFailed(global, OfLine(line, report.status()));
    return;
  }
  total.tokens = SaturatingAdd(total.tokens, std::max(report->tokens(), int64_t{0}));
  WarnOfRows(global, *report);
  if (global.format != OutputFormat::kJson) return;
  const nlohmann::json json = {{"line", line.number},
                               {"report", nlohmann::json::parse(MessageAsJson(*report))}};
  std::printf("%s\n", wire::PrintableJson(json.dump()).c_str());
}

// Runs the jobs of one call. Returns an error if a job of the command's first call cannot be
// opened; nothing was sent then. Later such a job fails alone.
absl::Status Run(const GlobalOptions& global, const ManyCommand& command, absl::Time begun,
                 std::span<const Line> lines, Total& total) {
  std::vector<absl::StatusOr<OpenedJob>> opened;
  opened.reserve(lines.size());
  std::vector<client::SmallJob> jobs;
  for (const Line& line : lines) {
    opened.push_back(Open(global, line));
    const auto& job = opened.back();
    if (job.ok()) {
      jobs.push_back(JobOf(line, *job));
    } else if (total.jobs == 0) {
      return OfLine(line, job.status());
    }
  }
  JobTeller teller(global);
  // A changed file fails only its own job, after all have ended.
  const client::JobOptions options = OptionsOf(global, command.call, begun, teller);
  auto reports = client::AttendMany(global.server, jobs, options);
  auto next = reports.begin();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!opened[i].ok()) {
      Tell(global, lines[i], opened[i].status(), total);
      continue;
    }
    absl::StatusOr<v1::Report> report = std::move(*next++);
    absl::Status status = client::CheckIntact(opened[i]->files);
    if (status.ok()) status = opened[i]->outputs.CheckIntact();
    if (status.ok() && report.ok()) status = opened[i]->outputs.Commit();
    if (!status.ok()) report = std::move(status);
    Tell(global, lines[i], report, total);
  }
  return absl::OkStatus();
}

}  // namespace

int RunAttendMany(const GlobalOptions& global, const ManyCommand& command) {
  const auto lines = ReadLines(command);
  if (!lines.ok()) return BadInput(global, lines.status());
  if (absl::Status paths = CheckPaths(global, command, *lines); !paths.ok()) {
    return BadInput(global, paths);
  }
  CatchInterrupts();
  const absl::Time begun = client::SteadyNow();
  Total total;
  const std::span<const Line> all(*lines);
  for (size_t first = 0; first < all.size(); first += kJobsOfACall) {
    const auto some = all.subspan(first, std::min(kJobsOfACall, all.size() - first));
    const absl::Status status = Run(global, command, begun, some, total);
    if (!status.ok()) return BadInput(global, status);
  }
  if (global.format != OutputFormat::kJson) {
    std::printf("%s jobs, %s failed, %s tokens, %.3f s\n", FormatCount(total.jobs).c_str(),
                FormatCount(total.failed).c_str(), FormatCount(total.tokens).c_str(),
                absl::ToDoubleSeconds(client::SteadyNow() - begun));
  }
  return total.failed == 0 ? kExitOk : kExitFailed;
}

}  // namespace hilbert_ring::cli
