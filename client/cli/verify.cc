#include "client/cpp/verify.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <thread>

#include "client/cli/commands.h"
#include "client/cli/failure.h"
#include "client/cli/json_message.h"
#include "client/cpp/job_files.h"
#include "engine/spec/spec_notes.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::cli {
namespace {

using client::NpyFile;
using client::VerifyFigures;
using client::VerifyResult;

void PrintFigures(const char* name, bool has_dim, const VerifyFigures& figures) {
  const Deviation& worst = figures.worst;
  if (worst.token < 0) {
    std::printf("%s: no number could be judged\n", name);
  } else {
    std::printf("%s: largest error %.3g; worst at token %lld, head %lld", name, figures.max_error,
                static_cast<long long>(worst.token), static_cast<long long>(worst.head));
    if (has_dim) std::printf(", dim %lld", static_cast<long long>(worst.dim));
    std::printf(": %.9g, expected %.9g, off by %.3g of %.3g allowed\n", worst.actual,
                worst.expected, worst.error, worst.tolerance);
  }
  if (figures.not_finite > 0) {
    std::printf("%s: %lld numbers in the file are not finite, the first for token %lld\n", name,
                static_cast<long long>(figures.not_finite),
                static_cast<long long>(figures.first_not_finite_token));
  }
}

nlohmann::ordered_json FiguresAsJson(bool has_dim, const VerifyFigures& figures) {
  const Deviation& worst = figures.worst;
  nlohmann::ordered_json json_worst = {{"token", worst.token}, {"head", worst.head}};
  if (has_dim) json_worst["dim"] = worst.dim;
  json_worst["actual"] = JsonNumber(worst.actual);
  json_worst["expected"] = JsonNumber(worst.expected);
  json_worst["error"] = JsonNumber(worst.error);
  json_worst["tolerance"] = JsonNumber(worst.tolerance);
  return {{"ok", figures.ok()},
          {"max_error", JsonNumber(figures.max_error)},
          {"worst", json_worst},
          {"not_finite", figures.not_finite},
          {"first_not_finite_token", figures.first_not_finite_token}};
}

void Print(const GlobalOptions& global, const VerifyCommand& command, const JobSpec& spec,
           const VerifyResult& result) {
  if (global.format == OutputFormat::kJson) {
    nlohmann::ordered_json json = {
        {"ok", result.ok()},     {"rows", result.rows},  {"rows_not_judged", result.not_judged},
        {"tokens", spec.tokens}, {"seed", command.seed}, {"out", FiguresAsJson(true, result.out)}};
    if (result.lse) json["lse"] = FiguresAsJson(false, *result.lse);
    std::printf("%s\n", json.dump(2).c_str());
    return;
  }
  std::printf("%lld of %lld rows computed again in float64 (seed %llu)\n",
              static_cast<long long>(result.rows), static_cast<long long>(spec.tokens),
              static_cast<unsigned long long>(command.seed));
  if (result.not_judged > 0) {
    std::printf(
        "%lld more were not judged: they see numbers that are not finite, or scores beyond "
        "float32\n",
        static_cast<long long>(result.not_judged));
  }
  PrintFigures("out", true, result.out);
  if (result.lse) PrintFigures("lse", false, *result.lse);
  std::printf("%s\n", result.ok() ? "ok" : "off");
}

}  // namespace

int RunVerify(const GlobalOptions& global, const VerifyCommand& command) {
  const absl::StatusOr<client::JobSource> source = SourceOf(global, command.job);
  if (!source.ok()) return BadInput(global, source.status());
  const absl::StatusOr<client::JobFiles> inputs = client::OpenJob(*source);
  if (!inputs.ok()) return BadInput(global, inputs.status());
  const client::Job& job = inputs->job;
  PrintNotes(global, NotesOn(job.spec));
  const absl::StatusOr<NpyFile> out = client::OpenTensor(command.out, job.shape, v1::TENSOR_OUT);
  if (!out.ok()) return BadInput(global, out.status());
  std::optional<NpyFile> lse;
  if (!command.lse.empty()) {
    absl::StatusOr<NpyFile> file = client::OpenTensor(command.lse, job.shape, v1::TENSOR_LSE);
    if (!file.ok()) return BadInput(global, file.status());
    lse = *std::move(file);
  }
  const absl::StatusOr<VerifyResult> result = client::Verify(
      {.spec = job.spec,
       .coordinates = job.coordinates ? &*job.coordinates : nullptr,
       .bias_coordinates = job.bias_coordinates ? &*job.bias_coordinates : nullptr,
       .q = inputs->q,
       .k = inputs->k,
       .v = inputs->v,
       .out = *out,
       .lse = lse ? &*lse : nullptr},
      {.rows = command.rows,
       .seed = command.seed,
       .threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))});
  absl::Status intact = client::CheckIntact(*inputs);
  if (intact.ok()) intact = out->CheckIntact();
  if (intact.ok() && lse) intact = lse->CheckIntact();
  if (!intact.ok()) return BadInput(global, intact);
  if (!result.ok()) return BadInput(global, result.status());
  Print(global, command, job.spec, *result);
  return result->ok() ? kExitOk : kExitFailed;
}

}  // namespace hilbert_ring::cli
