#include "tests/golden/encoder_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "nlohmann/json.hpp"
#include "tests/golden/npy_values.h"

namespace hilbert_ring::testing {

namespace {

// Programs outside the build tree find the encoder cases beside HILBERT_RING_GOLDEN_DIR, the
// attention cases' folder.
std::string CasesFolder() {
  const char* const cases = std::getenv("HILBERT_RING_GOLDEN_DIR");
  return cases == nullptr ? HILBERT_RING_ENCODER_CASES : absl::StrCat(cases, "/../encoder_cases");
}

absl::StatusOr<AutocastErrors> ReadAutocastErrors(const std::string& path, bool pools) {
  const auto read = nlohmann::json::parse(ReadFile(path), nullptr, false);
  if (!read.is_object()) return absl::InvalidArgumentError(path);
  AutocastErrors errors{.states = read.at("states").get<std::vector<double>>(),
                        .out = read.at("out").get<double>()};
  if (pools) {
    errors.class_out = read.at("class_out").get<double>();
    errors.mean_out = read.at("mean_out").get<double>();
    errors.class_states = read.at("class_states").get<std::vector<double>>();
    errors.mean_states = read.at("mean_states").get<std::vector<double>>();
  }
  return errors;
}

}  // namespace

std::vector<std::string> EncoderCaseNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CasesFolder())) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

absl::StatusOr<EncoderCase> LoadEncoderCase(const std::string& name) {
  EncoderCase golden{.name = name, .folder = absl::StrCat(CasesFolder(), "/", name)};
  const std::string folder = golden.folder + "/";
  const auto input = nlohmann::json::parse(ReadFile(folder + "input.json"), nullptr, false);
  if (!input.is_object()) return absl::InvalidArgumentError(folder + "input.json");
  golden.slide_tiles = input.at("sequence_lengths").get<std::vector<int64_t>>();
  struct Field {
    const char* file;
    std::vector<float>* values;
  };
  std::vector<Field> fields = {
      {"tiles", &golden.tiles}, {"states", &golden.states}, {"out", &golden.out}};
  if (std::filesystem::exists(folder + "pooled_class_out.npy")) {
    fields.insert(fields.end(), {{"pooled_class_out", &golden.class_out},
                                 {"pooled_class_states", &golden.class_states},
                                 {"pooled_mean_out", &golden.mean_out},
                                 {"pooled_mean_states", &golden.mean_states}});
  }
  if (std::filesystem::exists(folder + "attention_map.npy")) {
    fields.push_back({"attention_map", &golden.attention_map});
  }
  for (const Field& field : fields) {
    ASSIGN_OR_RETURN(*field.values,
                     ReadNpy<float>(absl::StrCat(folder, field.file, ".npy"), "<f4"));
  }
  if (std::filesystem::exists(folder + "coords.npy")) {
    ASSIGN_OR_RETURN(const std::vector<float> coords, ReadNpy<float>(folder + "coords.npy", "<f4"));
    golden.coords.assign(coords.begin(), coords.end());
  }
  ASSIGN_OR_RETURN(golden.autocast,
                   ReadAutocastErrors(folder + "autocast.json", !golden.class_out.empty()));
  return golden;
}

std::string EncoderMismatch(const std::vector<float>& values, std::span<const float> expected,
                            double scale) {
  if (values.size() != expected.size()) {
    return std::to_string(values.size()) + " values, must be " + std::to_string(expected.size());
  }
  constexpr double kTolerance = 2e-5;
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double off = std::abs(double{values[i]} - expected[i]) / (scale + std::abs(expected[i]));
    if (off <= worst) continue;  // false for NaN
    worst = off;
    at = i;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) return "value " + std::to_string(i) + " is NaN";
  }
  if (worst <= kTolerance) return "";
  std::ostringstream text;
  text << "value " << at << " is " << values[at] << ", must be " << expected[at] << " (" << worst
       << " of " << scale << " + |x|)";
  return text.str();
}

std::string BFloat16Mismatch(const std::vector<float>& values, std::span<const float> expected,
                             double autocast) {
  constexpr double kOfAutocast = 1.5;
  constexpr double kOfFloat32 = 1e-6;  // bfloat16's errors, of 8 bits, are far above
  if (autocast < kOfFloat32) return EncoderMismatch(values, expected);
  if (values.size() != expected.size()) {
    return std::to_string(values.size()) + " values, must be " + std::to_string(expected.size());
  }
  double errors = 0, squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    errors += std::pow(double{values[i]} - expected[i], 2);
    squares += std::pow(double{expected[i]}, 2);
  }
  const double error = std::sqrt(errors / squares);
  if (error <= kOfAutocast * autocast) return "";  // false for NaN
  std::ostringstream text;
  text << "the error is " << error << ", PyTorch's " << autocast << " (" << error / autocast
       << " times)";
  return text.str();
}

std::vector<float> OfState(const std::vector<float>& rows, int64_t slides, int64_t states,
                           int64_t state) {
  const int64_t dim = std::ssize(rows) / slides / states;
  std::vector<float> of_state;
  of_state.reserve(static_cast<size_t>(slides * dim));
  for (int64_t slide = 0; slide < slides; ++slide) {
    const auto begin = rows.begin() + (slide * states + state) * dim;
    of_state.insert(of_state.end(), begin, begin + dim);
  }
  return of_state;
}

}  // namespace hilbert_ring::testing
