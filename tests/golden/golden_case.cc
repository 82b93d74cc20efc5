#include "tests/golden/golden_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/spec/job_spec_json.h"
#include "engine/spec/numbers.h"
#include "nlohmann/json.hpp"
#include "tests/golden/npy_values.h"

namespace hilbert_ring::testing {
namespace {

// The repository's folder, or HILBERT_RING_GOLDEN_DIR outside the build tree.
std::string GoldenFolder() {
  const char* const elsewhere = std::getenv("HILBERT_RING_GOLDEN_DIR");
  return elsewhere != nullptr ? elsewhere : HILBERT_RING_GOLDEN_DIR;
}

std::vector<double> GreatestFiniteScores(const GoldenCase& golden) {
  const JobSpec& spec = golden.spec;
  std::vector<double> greatest(spec.tokens);
  for (int64_t token = 0; token < spec.tokens; ++token) {
    for (int64_t head = 0; head < spec.heads; ++head) {
      const float* const q = golden.q.data() + (token * spec.heads + head) * spec.head_dim;
      const int64_t kv_head = head * spec.kv_heads / spec.heads;
      for (int64_t key = 0; key < KeyTokens(spec); ++key) {
        const float* const k = golden.k.data() + (key * spec.kv_heads + kv_head) * spec.head_dim;
        const double score =
            std::abs(std::inner_product(q, q + spec.head_dim, k, 0.0)) * std::abs(spec.Scale());
        if (std::isfinite(score)) greatest[token] = std::max(greatest[token], score);
      }
    }
  }
  return greatest;
}

}  // namespace

std::vector<std::string> GoldenCaseNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenFolder())) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<GoldenCase> LoadGoldenCase(const std::string& name) {
  const std::string folder = absl::StrCat(GoldenFolder(), "/", name, "/");
  GoldenCase golden{.name = name};
  auto document = ParseJobSpec(ReadFile(folder + "case.json"));
  if (!document.ok()) return document.status();
  golden.spec = document->spec;
  struct Field {
    const char* file;
    std::vector<float>* values;
  };
  for (const Field& field : {Field{"q", &golden.q}, {"k", &golden.k}, {"v", &golden.v}}) {
    auto values = ReadNpy<float>(absl::StrCat(folder, field.file, ".npy"), "<f4");
    if (!values.ok()) return values.status();
    *field.values = *std::move(values);
  }
  auto out = ReadNpy<float>(folder + "out.npy", "<f4");
  if (!out.ok()) return out.status();
  golden.out.assign(out->begin(), out->end());
  auto lse = ReadNpy<float>(folder + "lse.npy", "<f4");
  if (!lse.ok()) return lse.status();
  golden.lse.assign(lse->begin(), lse->end());
  if (document->coords_file.has_value()) {
    auto coords = ReadNpy<int32_t>(folder + "coords.npy", "<i4");
    if (!coords.ok()) return coords.status();
    golden.coords.assign(coords->begin(), coords->end());
    golden.spec.ordering->coordinate_axes =
        static_cast<int>(static_cast<int64_t>(golden.coords.size()) / KeyTokens(golden.spec));
  }
  if (BiasAxes(golden.spec) > 0) {
    auto coords = ReadNpy<float>(folder + "bias_coords.npy", "<f4");
    if (!coords.ok()) return coords.status();
    golden.bias_coords = *std::move(coords);
  }
  // Python writes infinities, which are not JSON.
  const auto bounds = nlohmann::json::parse(
      absl::StrReplaceAll(ReadFile(folder + "bounds.json"), {{"Infinity", "null"}}), nullptr,
      false);
  if (!bounds.is_object()) return absl::InvalidArgumentError(folder + "bounds.json");
  golden.max_value = bounds.at("max_value").get<double>();
  if (bounds.at("max_score").is_null()) {
    golden.max_scores = GreatestFiniteScores(golden);
  } else {
    golden.max_scores.assign(golden.spec.tokens, bounds.at("max_score").get<double>());
  }
  return golden;
}

std::vector<DataType> TypesThatHold(const GoldenCase& golden) {
  std::vector<DataType> types;
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    const auto holds = [dtype](float value) {
      std::byte element[sizeof(float)];
      StoreElement(dtype, element, 0, value);
      return std::isnan(value) || LoadElement(dtype, element, 0) == value;
    };
    if (std::ranges::all_of(golden.q, holds) && std::ranges::all_of(golden.k, holds) &&
        std::ranges::all_of(golden.v, holds)) {
      types.push_back(dtype);
    }
  }
  return types;
}

}  // namespace hilbert_ring::testing
