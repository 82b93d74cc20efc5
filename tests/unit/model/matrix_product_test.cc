#include "engine/model/matrix_product.h"

#include <cmath>
#include <random>
#include <vector>

#include "engine/device/cpu/machine.h"
#include "engine/model/files/encoder_plan.h"
#include "engine/spec/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hilbert_ring {
namespace {

float Rounded(float value) { return BFloat16ToFloat(FloatToBFloat16(value)); }

struct Case {
  int64_t out, in, rows;
};

class Products : public ::testing::TestWithParam<Operand> {};

// Against sums in float64 of the numbers that the operand holds. Rows fewer than those that the
// layout of weights is chosen for, and dims of no vector's length.
TEST_P(Products, AreThoseOfFloat64) {
  const Operand operand = GetParam();
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  for (const Case& c : {Case{8, 8, 1}, Case{72, 17, 5}, Case{100, 72, 16}, Case{72, 100, 33},
                        Case{256, 128, 256}, Case{48, 768, 100}}) {
    std::vector<float> weights(c.out * c.in), bias(c.out), from(c.rows * c.in);
    for (auto* values : {&weights, &bias, &from}) {
      for (float& value : *values) value = normal(random);
    }
    const bool rounds = operand != Operand::kFloat32;
    std::vector<std::byte> input(from.size() * ElementBytes(StorageOf(operand)));
    for (size_t i = 0; i < from.size(); ++i) {
      if (rounds) from[i] = Rounded(from[i]);
      StoreElement(StorageOf(operand), input.data(), static_cast<int64_t>(i), from[i]);
    }
    const MatrixShape shape{.out = c.out, .in = c.in, .operand = operand};
    const auto packed = PackedMatrix::Make(shape, weights, bias);
    ASSERT_TRUE(packed.ok()) << packed.status();
    for (const DataType to : {DataType::kFloat32, StorageOf(operand)}) {
      const auto product = RowProduct::Make(shape, c.rows, to);
      ASSERT_TRUE(product.ok()) << product.status();
      EXPECT_THAT(product->kernel(), ::testing::Not(::testing::HasSubstr("ref")));
      std::vector<std::byte> output(c.rows * c.out * ElementBytes(to));
      std::vector<std::byte> scratch(product->scratch_bytes());
      ASSERT_TRUE(product->Run(*packed, input.data(), output.data(), scratch.data()).ok());
      for (int64_t row = 0; row < c.rows; ++row) {
        for (int64_t o = 0; o < c.out; ++o) {
          double sum = bias[o];
          for (int64_t i = 0; i < c.in; ++i) {
            const float w = weights[o * c.in + i];
            sum += double{from[row * c.in + i]} * (rounds ? Rounded(w) : w);
          }
          const double tolerance =
              (to == DataType::kBFloat16 ? 0.005 : 2e-6 * std::sqrt(c.in)) * (1 + std::abs(sum));
          ASSERT_NEAR(LoadElement(to, output.data(), row * c.out + o), sum, tolerance)
              << c.out << " x " << c.in << ", row " << row << ", column " << o;
        }
      }
    }
  }
}

std::vector<Operand> Operands() {
  std::vector<Operand> operands = {Operand::kFloat32, Operand::kRoundedFloat32};
  // Where the processor has none, oneDNN's reference would serve, which is not used.
  if (OperandOf(DataType::kBFloat16) == Operand::kBFloat16) operands.push_back(Operand::kBFloat16);
  return operands;
}

// What oneDNN takes for itself, of narrow and of wide encoders.
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
