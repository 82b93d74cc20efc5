#include "engine/model/files/encoder_config.h"
#include "tests/fuzz/target.h"

namespace hilbert_ring::fuzz {
namespace {

constexpr size_t kMaxMessage = 1024;  // bytes of an error

}  // namespace

void EncoderConfigJson(Bytes input) {
  const auto config =
      ParseEncoderConfig({reinterpret_cast<const char*>(input.data()), input.size()});
  if (!config.ok()) {
    Require(absl::IsInvalidArgument(config.status()) || absl::IsOutOfRange(config.status()),
            "an error is INVALID_ARGUMENT or OUT_OF_RANGE");
    Require(config.status().message().size() <= kMaxMessage,
            "an error has a message of bounded length");
    return;
  }
  Require(config->heads * config->head_dim() == config->embed_dim, "heads tile a row");
  for (const WeightShape& weight : WeightShapes(*config)) {
    for (const int64_t axis : weight.shape) Require(axis > 0, "no weight is empty");
  }
  const auto spec = AttentionOf(*config, DataType::kBFloat16, {1, 1000});
  Require(spec.ok() && spec->tokens == 1001 + 2 * TokensOf(*config, 0),
          "a valid config attends to slides");
}

}  // namespace hilbert_ring::fuzz
