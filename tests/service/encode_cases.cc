#include "tests/service/encode_cases.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "gtest/gtest.h"

namespace hilbert_ring::testing {

std::string ModelsOfCases() {
  return std::filesystem::path(LoadEncoderCase(EncoderCaseNames().front())->folder)
      .parent_path()
      .string();
}

EncodeInputs InputsOf(const EncoderCase& golden) {
  int64_t tiles = 0;
  for (const int64_t of_slide : golden.slide_tiles) tiles += of_slide;
  return {.count = tiles, .tiles = golden.tiles, .coords = golden.coords};
}

namespace {

void SetAllStates(const EncoderCase& golden, v1::EncodeSpec& spec) {
  const int64_t states = std::ssize(golden.states) / std::ssize(golden.out);
  for (int64_t state = 0; state < states; ++state) spec.add_states(state);
  spec.set_skip_final_norm(true);
}

std::vector<float> ByToken(const std::vector<float>& states, int64_t count, int64_t dim) {
  const int64_t tokens = std::ssize(states) / count / dim;
  std::vector<float> rows(states.size());
  for (int64_t state = 0; state < count; ++state) {
    for (int64_t token = 0; token < tokens; ++token) {
      std::copy_n(states.begin() + (state * tokens + token) * dim, dim,
                  rows.begin() + (token * count + state) * dim);
    }
  }
  return rows;
}

void CheckRows(const Cluster& cluster, const EncoderCase& golden) {
  v1::EncodeSpec spec = SpecOf(golden.name, golden.slide_tiles, v1::POOLING_NONE);
  SetAllStates(golden, spec);
  const EncodeResult all =
      EncodeRaw(cluster.Channel(), spec, InputsOf(golden), {.chunk_rows = 5, .seed = 2}).value();
  EXPECT_EQ(all.report.model_digest().size(), 64u);
  int64_t tokens = 0;
  for (const v1::WorkerReport& worker : all.report.workers()) tokens += worker.tokens();
  const int64_t dim = std::ssize(golden.out) / tokens;
  EXPECT_EQ(EncoderMismatch(all.outputs.at(v1::TENSOR_STATES),
                            ByToken(golden.states, spec.states_size(), dim)),
            "");
}

void CheckPooled(const Cluster& cluster, const EncoderCase& golden) {
  for (const v1::Pooling pooling : {v1::POOLING_CLASS, v1::POOLING_MEAN}) {
    const bool of_class = pooling == v1::POOLING_CLASS;
    v1::EncodeSpec spec = SpecOf(golden.name, golden.slide_tiles, pooling);
    SetAllStates(golden, spec);
    const auto all =
        EncodeRaw(cluster.Channel(), spec, InputsOf(golden), {.chunk_rows = 3, .seed = 4});
    if (golden.class_out.empty()) {
      EXPECT_TRUE(absl::IsInvalidArgument(all.status())) << all.status();
      continue;
    }
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(EncoderMismatch(all->outputs.at(v1::TENSOR_POOLED),
                              of_class ? golden.class_states : golden.mean_states),
              "");
  }
}

void CheckBFloat16(const Cluster& cluster, const EncoderCase& golden) {
  v1::EncodeSpec spec = SpecOf(golden.name, golden.slide_tiles, v1::POOLING_NONE);
  spec.set_compute(v1::DATA_TYPE_BFLOAT16);
  const EncodeResult rows =
      EncodeRaw(cluster.Channel(), spec, InputsOf(golden), {.chunk_rows = 13, .seed = 6}).value();
  EXPECT_EQ(BFloat16Mismatch(rows.outputs.at(v1::TENSOR_STATES), golden.out, golden.autocast.out),
            "");
}

void CheckMap(const Cluster& cluster, const EncoderCase& golden) {
  if (golden.attention_map.empty()) return;
  const int64_t layers = std::ssize(golden.states) / std::ssize(golden.out) - 1;
  v1::EncodeSpec spec = SpecOf(golden.name, golden.slide_tiles, v1::POOLING_MEAN);
  spec.set_attention_map_layer(layers);
  spec.set_attention_map_by_head(true);
  const auto result =
      EncodeRaw(cluster.Channel(), spec, InputsOf(golden), {.chunk_rows = 9, .seed = 5});
  ASSERT_TRUE(result.ok()) << result.status();
  const auto of_layer = std::ssize(golden.attention_map) / layers;
  EXPECT_EQ(EncoderMismatch(result->outputs.at(v1::TENSOR_ATTENTION_MAP),
                            std::span(golden.attention_map).last(of_layer),
                            1.0 / static_cast<double>(result->report.tokens())),
            "");
  EXPECT_EQ(EncoderMismatch(result->outputs.at(v1::TENSOR_POOLED), golden.mean_out), "");
}

}  // namespace

void CheckCase(const Cluster& cluster, const std::string& name) {
  SCOPED_TRACE(name);
  const EncoderCase golden = LoadEncoderCase(name).value();
  CheckRows(cluster, golden);
  CheckPooled(cluster, golden);
  CheckMap(cluster, golden);
}

void CheckEveryCase(const Cluster& cluster) {
  for (const std::string& name : EncoderCaseNames()) {
    CheckCase(cluster, name);
    SCOPED_TRACE(name);
    CheckBFloat16(cluster, LoadEncoderCase(name).value());
  }
}

}  // namespace hilbert_ring::testing
