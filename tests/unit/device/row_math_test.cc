// The steps of RowMath against their formulas in float64, over rows of odd widths and numbers of
// any size, on the machine's GPU or on the emulated one.
#include "engine/device/row_math.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "engine/spec/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/device/kernel_options.h"

namespace hilbert_ring {
namespace {

// The rounding of one more step.
constexpr double kRounding = 0x1p-23;

std::vector<float> Values(int64_t count, uint64_t seed, float size = 1, float mean = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(mean, 1);
  std::vector<float> values(count);
  for (float& value : values) value = size * normal(random);
  return values;
}

class RowMathOf : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status gpu = FindCudaDevice(0); !gpu.ok()) GTEST_SKIP() << gpu.message();
    device_ = MakeDevice(OptionsFor("cuda", 0)).value();
    const auto math = device_->row_math();
    if (!math.ok()) GTEST_SKIP() << math.status().message();
    math_ = *math;
  }

  // Returns device memory with these values.
  template <typename T>
  T* Copied(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    T* const data = Empty<T>(static_cast<int64_t>(values.size()));
    EXPECT_TRUE(device_->CopyIn(data, values.data(), bytes).ok());
    return data;
  }

  void* CopiedAs(DataType dtype, const std::vector<float>& values) {
    std::vector<std::byte> stored(values.size() * ElementBytes(dtype));
    for (size_t i = 0; i < values.size(); ++i) {
      StoreElement(dtype, stored.data(), static_cast<int64_t>(i), values[i]);
    }
    return Copied(stored);
  }

  template <typename T>
  T* Empty(int64_t count) {
    auto buffer = device_->Allocate(count * static_cast<int64_t>(sizeof(T)));
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    buffers_.push_back(*std::move(buffer));
    return reinterpret_cast<T*>(buffers_.back()->data());
  }

  template <typename T>
  std::vector<T> Back(const T* data, int64_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(device_->CopyOut(values.data(), data, count * sizeof(T)).ok());
    return values;
  }

  std::vector<float> BackAs(DataType dtype, const void* data, int64_t count) {
    const auto stored = Back(static_cast<const std::byte*>(data), count * ElementBytes(dtype));
    std::vector<float> values(count);
    for (int64_t i = 0; i < count; ++i) values[i] = LoadElement(dtype, stored.data(), i);
    return values;
  }

  void Run(const ModelStep& step) {
    const absl::Status status = math_->Run({&step, 1});
    EXPECT_TRUE(status.ok()) << status;
  }

  std::unique_ptr<Device> device_;
  RowMath* math_ = nullptr;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

// Values after storing them in a type.
std::vector<float> Rounded(DataType dtype, std::vector<float> values) {
  for (float& value : values) {
    uint32_t stored = 0;
    StoreElement(dtype, &stored, 0, value);
    value = LoadElement(dtype, &stored, 0);
  }
  return values;
}

double Gelu(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }

struct Normed {
  std::vector<double> values;
  double deviation = 0;  // of the row
};

Normed NormOf(const std::vector<double>& row, const float* weight, const float* bias,
              double epsilon) {
  const auto count = static_cast<double>(row.size());
  double mean = 0, variance = 0;
  for (const double x : row) mean += x / count;
  for (const double x : row) variance += (x - mean) * (x - mean) / count;
  Normed normed{.deviation = std::sqrt(variance + epsilon)};
  for (size_t i = 0; i < row.size(); ++i) {
    normed.values.push_back((row[i] - mean) / normed.deviation * weight[i] + bias[i]);
  }
  return normed;
}

// Hard rows: a mean far from 0, squares that overflow float32, and rows longer than a block keeps.
TEST_F(RowMathOf, NormsOfRowsThatAreHard) {
  struct Hard {
    int64_t dim;
    float size, mean;
    double tolerance;
  };
  for (const Hard& hard :
       {Hard{768, 1, 1000, 1e-3}, Hard{50, 1e19f, 0, 1e-5}, Hard{768, 3e37f, 0, 1e-5},
        Hard{13001, 1, 0, 1e-5}, Hard{3, 1, 0, 1e-5}, Hard{64, 1e-15f, 0, 1e-5},
        Hard{1536, 1e12f, 0, 1e-5}, Hard{3072, 1, 0, 1e-5}}) {
    const int64_t dim = hard.dim;
    const auto from = Values(dim, 9, hard.size, hard.mean), weight = Values(dim, 2);
    const auto bias = Values(dim, 3);
    float* const to = Empty<float>(dim);
    Run(RowsTask{.rows = 1,
                 .dim = dim,
                 .from = Copied(from),
                 .from_stride = dim,
                 .norm = {Copied(weight), Copied(bias), 1e-5f},
                 .to = to});
    const auto found = Back(to, dim);
    const Normed normed =
        NormOf({from.begin(), from.end()}, weight.data(), bias.data(), double{1e-5f});
    for (int64_t x = 0; x < dim; ++x) {
      EXPECT_NEAR(found[x], normed.values[x], hard.tolerance * (1 + std::abs(normed.values[x])))
          << dim << " of size " << hard.size << " at " << x;
    }
  }
  const float infinite = std::numeric_limits<float>::infinity();
  std::vector<float> row(20, 1), ones(20, 1);
  row[3] = infinite;
  float* const to = Empty<float>(40);
  row.insert(row.end(), 20, 2.0f);
  Run(RowsTask{.rows = 2,
               .dim = 20,
               .from = Copied(row),
               .from_stride = 20,
               .norm = {Copied(ones), Copied(ones), 1e-5f},
               .to = to});
  const auto found = Back(to, 40);
  EXPECT_TRUE(std::isnan(found[3]));
  EXPECT_EQ(found[25], 1) << "a row touches another";
}

// The operations after a product, in every combination.
TEST_F(RowMathOf, BiasActivationResidualAndNormInOneStep) {
  const int64_t rows = 3, stride_more = 7;
  for (const int64_t dim : {1, 50, 768, 12500}) {
    for (int options = 0; options < 16; ++options) {
      const bool biased = options & 1, gelu = options & 2, added = options & 4,
                 normed = options & 8;
      const int64_t stride = dim + stride_more;
      const auto from = Values(rows * stride, dim), bias = Values(dim, 5), weight = Values(dim, 6);
      const auto before = Values(rows * dim, 7);
      float* const residual = Copied(before);
      float* const to = Empty<float>(rows * dim);
      Run(RowsTask{.rows = rows,
                   .dim = dim,
                   .from = Copied(from),
                   .from_stride = stride,
                   .bias = biased ? Copied(bias) : nullptr,
                   .activation = gelu ? Activation::kGelu : Activation::kNone,
                   .residual = added ? residual : nullptr,
                   .norm = normed ? DeviceNorm{Copied(weight), Copied(bias), 1e-5f} : DeviceNorm{},
                   .to = to});
      const auto found = Back(to, rows * dim), after = Back(residual, rows * dim);
      for (int64_t row = 0; row < rows; ++row) {
        std::vector<double> expected(dim);
        for (int64_t x = 0; x < dim; ++x) {
          double y = from[row * stride + x] + (biased ? bias[x] : 0.0);
          if (gelu) y = Gelu(y);
          if (added) y += before[row * dim + x];
          expected[x] = y;
          const double held = added ? y : before[row * dim + x];
          EXPECT_NEAR(after[row * dim + x], held, 2e-6 * (1 + std::abs(held)));
        }
        if (normed) expected = NormOf(expected, weight.data(), bias.data(), 1e-5).values;
        // The norm of one element is of rounding errors, over sqrt(epsilon).
        const double tolerance = normed ? (dim == 1 ? 2e-3 : 2e-5) : 2e-6;
        for (int64_t x = 0; x < dim; ++x) {
          ASSERT_NEAR(found[row * dim + x], expected[x], tolerance * (1 + std::abs(expected[x])))
              << dim << ", options " << options << " at " << row << ", " << x;
        }
      }
    }
  }
}

TEST_F(RowMathOf, GeluIsTheExactOne) {
  std::vector<float> from;
  for (double x = -12; x <= 12; x += 0.0113) from.push_back(static_cast<float>(x));
  for (const float x : {0.0f, 1e4f, -1e4f, 1e-30f, 3e38f}) from.push_back(x);
  const auto dim = static_cast<int64_t>(from.size());
  float* const to = Empty<float>(dim);
  Run(RowsTask{.rows = 1,
               .dim = dim,
               .from = Copied(from),
               .from_stride = dim,
               .activation = Activation::kGelu,
               .to = to});
  const auto found = Back(to, dim);
  for (int64_t i = 0; i < dim; ++i) {
    const double expected = Gelu(from[i]);
    EXPECT_NEAR(found[i], expected, 1e-6 * (1 + std::abs(expected))) << from[i];
  }
}

TEST_F(RowMathOf, TypesAreReadAndRoundedToNearestEven) {
  for (const DataType of : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    for (const DataType as : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
      const int64_t rows = 2, dim = 51;
      const auto from = Rounded(of, Values(rows * dim, 11));
      void* const to = Empty<std::byte>(rows * dim * ElementBytes(as));
      Run(RowsTask{.rows = rows,
                   .dim = dim,
                   .from = CopiedAs(of, from),
                   .from_dtype = of,
                   .from_stride = dim,
                   .to = to,
                   .to_dtype = as});
      EXPECT_EQ(BackAs(as, to, rows * dim), Rounded(as, from));
    }
  }
}

TEST_F(RowMathOf, TilesArePlacedWithBiasAndPosition) {
  const int64_t rows = 4, dim = 52, places = 9;
  const auto from = Rounded(DataType::kBFloat16, Values(rows * dim, 1)), bias = Values(dim, 2);
  const std::vector<int64_t> to_rows{7, 0, 8, 3};
  const std::vector<double> coords{0, 0, 255.5, 256, 255'999, 100'000.25, 77'000, 512};
  std::vector<double> frequencies(dim / 4);
  for (int64_t i = 0; i < dim / 4; ++i) {
    frequencies[i] = std::pow(10000.0, -static_cast<double>(i) / 13.0);
  }
  const std::vector<float> untouched(places * dim, 77);
  for (const bool positioned : {false, true}) {
    float* const to = Copied(untouched);
    Run(PlaceTask{.rows = rows,
                  .dim = dim,
                  .from = CopiedAs(DataType::kBFloat16, from),
                  .from_dtype = DataType::kBFloat16,
                  .bias = positioned ? Copied(bias) : nullptr,
                  .places = Copied(to_rows),
                  .to = to,
                  .coords = positioned ? Copied(coords) : nullptr,
                  .frequencies = Copied(frequencies),
                  .tile_size = 256});
    auto found = Back(to, places * dim);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t x = 0; x < dim; ++x) {
        double expected = from[i * dim + x];
        if (positioned) {
          const double cell = std::floor(coords[2 * i + (x < dim / 2 ? 1 : 0)] / 256);
          const double angle = cell * frequencies[x % (dim / 2) % (dim / 4)];
          expected += bias[x] + (x % (dim / 2) < dim / 4 ? std::sin(angle) : std::cos(angle));
        }
        EXPECT_NEAR(found[to_rows[i] * dim + x], expected, 2e-6 * (1 + std::abs(expected)));
        found[to_rows[i] * dim + x] = 77;
      }
    }
    EXPECT_EQ(found, untouched) << "of other rows";
  }
}

TEST_F(RowMathOf, SumsAddUpInFloat64) {
  for (const int64_t dim : {1, 33, 768}) {
    for (const int64_t rows : {1, 7, 1024}) {
      const auto from = Values(rows * dim, rows, 1, 1e4f);
      std::vector<double> expected(dim, 5);
      double* const to = Copied(expected);
      Run(SumTask{.rows = rows, .dim = dim, .from = Copied(from), .to = to});
      for (int64_t i = 0; i < rows * dim; ++i) expected[i % dim] += from[i];
      const auto found = Back(to, dim);
      for (int64_t x = 0; x < dim; ++x) {
        EXPECT_NEAR(found[x], expected[x], 1e-12 * std::abs(expected[x])) << rows << " x " << dim;
      }
    }
  }
}

// Sums of float32: a number that TF32 or bfloat16 would not keep changes the result.
TEST_F(RowMathOf, ProductsAreThoseOfTheirType) {
  const int64_t workspace_bytes = 4096;
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const auto& [rows, in, out] : {std::array<int64_t, 3>{1, 1, 1},
                                        {5, 50, 3},
                                        {17, 768, 50},
                                        {3, 1536, 768},
                                        {33, 7, 65}}) {
      for (const float size : {1e-12f, 1.0f, 1e15f}) {
        const auto from = Rounded(dtype, Values(rows * in, rows, size));
        const auto weights = Rounded(dtype, Values(out * in, out));
        float* const to = Empty<float>(rows * out);
        Run(ProductTask{.dtype = dtype,
                        .rows = rows,
                        .in = in,
                        .out = out,
                        .from = CopiedAs(dtype, from),
                        .weights = CopiedAs(dtype, weights),
                        .to = to,
                        .workspace = Empty<std::byte>(workspace_bytes),
                        .workspace_bytes = workspace_bytes});
        const auto found = Back(to, rows * out);
        for (int64_t i = 0; i < rows * out; ++i) {
          double expected = 0, greatest = 0;
          for (int64_t k = 0; k < in; ++k) {
            const double product =
                static_cast<double>(from[i / out * in + k]) * weights[i % out * in + k];
            expected += product;
            greatest += std::abs(product);
          }
          EXPECT_NEAR(found[i], expected, kRounding * 8 * greatest)
              << rows << " x " << in << " x " << out << " at " << i;
        }
      }
    }
  }
}

// Steps of one call see the results of earlier steps.
TEST_F(RowMathOf, StepsFollowEachOther) {
  const std::vector<float> from{1, 2, 3, 4}, identity{1, 0, 0, 1};
  float* const first = Empty<float>(4);
  float* const second = Empty<float>(4);
  float* const residual = Empty<float>(4);
  const RowsTask add{.rows = 2,
                     .dim = 2,
                     .from = Copied(from),
                     .from_stride = 2,
                     .residual = residual,
                     .to = first};
  const std::vector<ModelStep> steps{
      add,
      ProductTask{.rows = 2,
                  .in = 2,
                  .out = 2,
                  .from = first,
                  .weights = Copied(identity),
                  .to = second,
                  .workspace = Empty<std::byte>(2048),
                  .workspace_bytes = 2048},
      RowsTask{.rows = 2, .dim = 2, .from = second, .from_stride = 2, .residual = residual}};
  EXPECT_TRUE(math_->Run(steps).ok());
  EXPECT_THAT(Back(residual, 4), ::testing::ElementsAre(2, 4, 6, 8));
}

TEST_F(RowMathOf, NothingIsDoneToNothing) {
  EXPECT_TRUE(math_->Run({}).ok());
  Run(ProductTask{.rows = 0, .in = 4, .out = 4});
  Run(RowsTask{.rows = 0, .dim = 4});
  Run(PlaceTask{.rows = 0, .dim = 4});
  Run(SumTask{.rows = 0, .dim = 4});
}

TEST_F(RowMathOf, WhatIsOutOfRangeIsRefusedBeforeAnythingIsDone) {
  const std::vector<float> from{1, 2};
  float* const residual = Empty<float>(2);
  const RowsTask good{
      .rows = 1, .dim = 2, .from = Copied(from), .from_stride = 2, .residual = residual};
  const std::pair<ModelStep, const char*> bad[] = {
      {ProductTask{.dtype = DataType::kFloat16}, "dtype"},
      {ProductTask{.rows = int64_t{1} << 31}, "rows is 2147483648"},
      {RowsTask{.rows = 2, .dim = 4, .from_stride = 3}, "from_stride is 3"},
      {RowsTask{.rows = -1}, "rows is -1"},
      {PlaceTask{.rows = 1, .dim = 6, .coords = reinterpret_cast<const double*>(residual)},
       "dim is 6"},
      {SumTask{.dim = -2}, "dim is -2"}};
  for (const auto& [step, words] : bad) {
    const std::vector<ModelStep> steps{good, step};
    const absl::Status status = math_->Run(steps);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(words));
  }
  EXPECT_THAT(Back(residual, 2), ::testing::Each(0));
}

}  // namespace
}  // namespace hilbert_ring
