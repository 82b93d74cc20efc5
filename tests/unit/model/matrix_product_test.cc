#include "engine/model/matrix_product.h"

#include <vector>

#include "engine/device/cpu/machine.h"
#include "engine/model/files/encoder_plan.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

struct Case {
  int64_t out, in, rows;
};

class Products : public ::testing::TestWithParam<Operand> {};

std::vector<Operand> Operands() {
  std::vector<Operand> operands = {Operand::kFloat32, Operand::kRoundedFloat32};
  // The engine does not use oneDNN's slow reference on processors without bfloat16 products.
  if (OperandOf(DataType::kBFloat16) == Operand::kBFloat16) operands.push_back(Operand::kBFloat16);
  return operands;
}

TEST_P(Products, ScratchIsPlanned) {
  if (StorageOf(GetParam()) == DataType::kBFloat16 && AllowAmxBFloat16()) {
    GTEST_SKIP() << "this processor has AMX, with which oneDNN's scratch was not measured";
  }
  const DataType storage = StorageOf(GetParam());
  for (const int64_t width : {16, 72, 512, 768, 1024}) {
    const EncoderConfig config = {.input_dim = 1536, .embed_dim = width, .ffn_dim = 4 * width};
    for (const int64_t rows : {16, 160, 256}) {
      const int64_t planned = ProductScratchBytes(config, rows, storage);
      for (const Case& c : {Case{width, 1536, rows}, Case{width, width, rows},
                            Case{4 * width, width, rows}, Case{width, 4 * width, rows}}) {
        const DataType to = c.out == c.in ? storage : DataType::kFloat32;  // queries, keys, values
        const auto product =
            RowProduct::Make({.out = c.out, .in = c.in, .operand = GetParam()}, rows, to);
        ASSERT_TRUE(product.ok()) << product.status();
        EXPECT_LE(product->scratch_bytes(), planned) << c.out << " x " << c.in << ", " << rows;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operands, Products, ::testing::ValuesIn(Operands()), [](const auto& info) {
  switch (info.param) {
    case Operand::kFloat32:
      return "Float32";
    case Operand::kBFloat16:
      return "BFloat16";
    default:
      return "RoundedFloat32";
  }
});

}  // namespace
}  // namespace hilbert_ring
