#include "client/cpp/coordinate_input.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
absl::StatusOr<CoordinateInput> Open(wire::NpyType type, std::vector<int64_t> shape,
                                     std::vector<T> values, int64_t tokens) {
  const TestFiles files;
  auto file = NpyFile::Open(files.WriteNpy("coords.npy", type, shape, values));
  if (!file.ok()) return file.status();
  return CoordinateInput::FromFile(*std::move(file), tokens);
}

TEST(CoordinateInput, ReadsEveryIntegerType) {
  const auto check = [](const absl::StatusOr<CoordinateInput>& coordinates) {
    ASSERT_TRUE(coordinates.ok()) << coordinates.status();
    EXPECT_EQ(coordinates->axes(), 2);
    std::vector<uint32_t> row(2);
    coordinates->Read(1, row);
    EXPECT_THAT(row, ElementsAre(3, 4));
    EXPECT_THAT(coordinates->All(), ElementsAre(1, 2, 3, 4));
  };
  check(Open<int16_t>(wire::NpyType::kInt16, {2, 2}, {1, 2, 3, 4}, 2));
  check(Open<uint16_t>(wire::NpyType::kUInt16, {2, 2}, {1, 2, 3, 4}, 2));
  check(Open<int32_t>(wire::NpyType::kInt32, {2, 2}, {1, 2, 3, 4}, 2));
  check(Open<uint32_t>(wire::NpyType::kUInt32, {2, 2}, {1, 2, 3, 4}, 2));
  check(Open<int64_t>(wire::NpyType::kInt64, {2, 2}, {1, 2, 3, 4}, 2));
  check(Open<uint64_t>(wire::NpyType::kUInt64, {2, 2}, {1, 2, 3, 4}, 2));
  check(CoordinateInput::FromRows({1, 2, 3, 4}, 2, 2));
}

TEST(CoordinateInput, ReadsFortranOrder) {
  const TestFiles files;
  auto file = NpyFile::Open(files.WriteFortranNpy("f.npy", wire::NpyType::kInt64, {4, 3},
                                                  std::vector<int64_t>{0, 3, 6, 9,      // x
                                                                       1, 4, 7, 10,     // y
                                                                       2, 5, 8, 11}));  // z
  ASSERT_TRUE(file.ok()) << file.status();
  const auto coordinates = CoordinateInput::FromFile(*std::move(file), 4);
  ASSERT_TRUE(coordinates.ok()) << coordinates.status();
  EXPECT_THAT(coordinates->All(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  std::vector<uint32_t> rows(6);
  coordinates->Read(2, rows);
  EXPECT_THAT(rows, ElementsAre(6, 7, 8, 9, 10, 11));
}

TEST(CoordinateInput, LimitsFollowTheAxes) {
  EXPECT_TRUE(Open<int64_t>(wire::NpyType::kInt64, {1, 2}, {0, 4294967295}, 1).ok());
  EXPECT_TRUE(Open<int64_t>(wire::NpyType::kInt64, {1, 3}, {0, 0, 2097151}, 1).ok());
  const auto refused = [](std::vector<int64_t> shape, std::vector<int64_t> values) {
    const int64_t rows = shape[0];
    const absl::Status status =
        Open<int64_t>(wire::NpyType::kInt64, std::move(shape), std::move(values), rows).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    return std::string(status.message());
  };
  EXPECT_THAT(refused({2, 2}, {0, 0, 0, 4294967296}),
              AllOf(HasSubstr("coords.npy: row 1, axis 1: coordinate 4294967296"),
                    HasSubstr("[0, 4294967295]")));
  EXPECT_THAT(refused({1, 3}, {0, 2097152, 0}),
              AllOf(HasSubstr("row 0, axis 1: coordinate 2097152"), HasSubstr("[0, 2097151]")));
  EXPECT_THAT(refused({1, 2}, {-1, 0}), HasSubstr("row 0, axis 0: coordinate -1"));
  EXPECT_FALSE(Open<uint64_t>(wire::NpyType::kUInt64, {1, 2}, {0, ~uint64_t{0}}, 1).ok());
}

TEST(CoordinateInput, RefusesOtherShapesAndTypes) {
  EXPECT_THAT(
      std::string(Open<float>(wire::NpyType::kFloat32, {1, 2}, {0, 0}, 1).status().message()),
      HasSubstr("integers"));
  EXPECT_THAT(std::string(Open<int32_t>(wire::NpyType::kInt32, {2}, {0, 0}, 1).status().message()),
              HasSubstr("shape is (2,), expected (1, 2) or (1, 3)"));
  EXPECT_THAT(
      std::string(Open<int32_t>(wire::NpyType::kInt32, {1, 2}, {0, 0}, 5).status().message()),
      HasSubstr("axis 0 (tokens) is 1, the job has 5"));
  EXPECT_THAT(std::string(CoordinateInput::FromRows({1, 2, 3}, 2, 2).status().message()),
              HasSubstr("ordering.coords"));
}

}  // namespace
}  // namespace hilbert_ring::client
