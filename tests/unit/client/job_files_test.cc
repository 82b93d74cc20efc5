#include "client/cpp/job_files.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kSpec =
    R"({"tokens": 2, "heads": 2, "kv_heads": 1, "head_dim": 8, "value_dim": 16,)"
    R"( "segments": [2], "dilations": [1]})";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(ReadJob, TakesGoldenCasesAsTheyStand) {
  const auto plain = ReadJob({.spec = GoldenPath("dense", "case.json")});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->spec.tokens, 128);
  EXPECT_FALSE(plain->coordinates.has_value());

  const auto volume = ReadJob({.spec = GoldenPath("morton_coords_3d", "case.json"),
                               .coords = GoldenPath("morton_coords_3d", "coords.npy")});
  ASSERT_TRUE(volume.ok()) << volume.status();
  EXPECT_EQ(volume->spec.ordering->coordinate_axes, 3);
  EXPECT_EQ(volume->coordinates->axes(), 3);
}

TEST(ReadJob, CoordinatesMustMatchTheSpec) {
  const std::string with = GoldenPath("hilbert_coords", "case.json");
  const std::string coords = GoldenPath("hilbert_coords", "coords.npy");
  EXPECT_TRUE(ReadJob({.spec = with, .coords = coords}).ok());
  EXPECT_THAT(
      Message(ReadJob({.spec = GoldenPath("dense", "case.json"), .coords = coords}).status()),
      HasSubstr("has no coordinates"));
}

// A spec with coordinates of two tokens in a folder of its own, next to which they lie.
class CoordsFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(files_.Path("jobs"));
    files_.WriteNpy("jobs/c.npy", wire::NpyType::kInt32, {2, 3},
                    std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  }
  std::string Spec(const std::string& coords) const {
    return files_.Write("jobs/s.json",
                        absl::StrCat(R"({"tokens": 2, "heads": 1, "head_dim": 8, "segments": [2],)"
                                     R"( "dilations": [1], "ordering": {"curve": "hilbert", )",
                                     coords, "}}"));
  }
  const TestFiles files_;
};

TEST_F(CoordsFile, LiesInTheSpecsFolder) {
  for (const std::string& name : {std::string("c.npy"), files_.Path("jobs/c.npy")}) {
    const std::string spec = Spec(absl::StrCat("\"coords_file\": \"", name, "\""));
    const auto job = ReadJob({.spec = spec});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_THAT(job->coordinates->All(), ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_EQ(job->spec.ordering->coordinate_axes, 3);
    EXPECT_TRUE(std::filesystem::equivalent(job->coords_path, files_.Path("jobs/c.npy")));
  }
}

TEST_F(CoordsFile, ThatIsMissingIsNamed) {
  const std::string spec = Spec(R"("coords_file": "no.npy")");
  EXPECT_THAT(
      Message(ReadJob({.spec = spec}).status()),
      AllOf(HasSubstr(spec), HasSubstr("ordering.coords_file: " + files_.Path("jobs/no.npy")),
            HasSubstr("--coords")));
  const auto job = ReadJob({.spec = spec}, CoordinatesUse::kOptional);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.ordering->coordinate_axes, 2);
  files_.Write("jobs/bad.npy", "no array");
  const std::string bad = Spec(R"("coords_file": "bad.npy")");
  EXPECT_FALSE(ReadJob({.spec = bad}, CoordinatesUse::kOptional).ok());
}

TEST_F(CoordsFile, MustHaveTheAxesThatTheSpecSays) {
  EXPECT_TRUE(ReadJob({.spec = Spec(R"("coords_file": "c.npy", "coords_axes": 3)")}).ok());
  EXPECT_THAT(
      Message(ReadJob({.spec = Spec(R"("coords_file": "c.npy", "coords_axes": 2)")}).status()),
      AllOf(HasSubstr("c.npy: has 3 axes"), HasSubstr("ordering.coords_axes is 2")));
}

TEST_F(CoordsFile, GivesWayToAnother) {
  const std::string other =
      files_.WriteNpy("d.npy", wire::NpyType::kInt32, {2, 2}, std::vector<int32_t>{7, 8, 9, 0});
  const auto job = ReadJob({.spec = Spec(R"("coords_file": "no.npy")"), .coords = other});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(job->coordinates->All(), ElementsAre(7, 8, 9, 0));
  EXPECT_EQ(job->coords_path, other);
  EXPECT_THAT(
      Message(ReadJob({.spec = Spec(R"("coords": [[1, 2], [3, 4]])"), .coords = other}).status()),
      HasSubstr("ordering.coords too"));
}

TEST(ReadJob, ReadsInlineCoordinates) {
  const TestFiles files;
  const auto job =
      ReadJob({.spec = files.Write(
                   "s.json",
                   R"({"tokens": 2, "heads": 1, "head_dim": 8, "segments": [2], "dilations": [1],)"
                   R"( "ordering": {"curve": "hilbert", "coords": [[1, 2], [3, 4]]}})")});
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE(job->coordinates.has_value());
  EXPECT_THAT(job->coordinates->All(), ElementsAre(1, 2, 3, 4));
}

TEST(ReadJob, ErrorsNameFileAndField) {
  const TestFiles files;
  EXPECT_EQ(ReadJob({.spec = files.Path("none.json")}).status().code(),
            absl::StatusCode::kNotFound);
  const std::string malformed = files.Write("malformed.json", "{");
  EXPECT_THAT(Message(ReadJob({.spec = malformed}).status()), HasSubstr(malformed));
  const std::string unknown =
      files.Write("unknown.json", R"({"tokens": 2, "heads": 1, "head_dim": 8, "segments": [2],)"
                                  R"( "dilations": [1], "sigments": 3})");
  EXPECT_THAT(Message(ReadJob({.spec = unknown}).status()), HasSubstr("sigments"));
  const std::string missing = files.Write(
      "missing.json", R"({"heads": 1, "head_dim": 8, "segments": [2], "dilations": [1]})");
  EXPECT_THAT(Message(ReadJob({.spec = missing}).status()), HasSubstr("tokens"));
  const std::string invalid =
      files.Write("invalid.json",
                  R"({"tokens": 2, "heads": 1, "head_dim": 9, "segments": [2], "dilations": [1]})");
  EXPECT_THAT(Message(ReadJob({.spec = invalid}).status()),
              AllOf(HasSubstr(invalid), HasSubstr("head_dim")));
  EXPECT_FALSE(ReadJob({.spec = files.Path("")}).ok());
}

class Tensors : public ::testing::Test {
 protected:
  JobSpec Spec(DataType dtype = DataType::kFloat32) const {
    JobSpec spec = ReadJob({.spec = files_.Write("s.json", kSpec)})->spec;
    spec.dtype = dtype;
    return spec;
  }
  std::string File(wire::NpyType type, const std::vector<int64_t>& shape) const {
    int64_t bytes = wire::NpyItemBytes(type);
    for (int64_t axis : shape) bytes *= axis;
    return files_.WriteNpy("t.npy", type, shape, std::vector<char>(static_cast<size_t>(bytes)));
  }
  const TestFiles files_;
};

TEST_F(Tensors, HaveTheSpecsShape) {
  EXPECT_TRUE(OpenTensor(File(wire::NpyType::kFloat32, {2, 2, 8}), Spec(), v1::TENSOR_Q).ok());
  EXPECT_TRUE(OpenTensor(File(wire::NpyType::kFloat32, {2, 1, 8}), Spec(), v1::TENSOR_K).ok());
  EXPECT_TRUE(OpenTensor(File(wire::NpyType::kFloat32, {2, 1, 16}), Spec(), v1::TENSOR_V).ok());
  EXPECT_TRUE(OpenTensor(File(wire::NpyType::kFloat32, {2, 2, 16}), Spec(), v1::TENSOR_OUT).ok());
  EXPECT_TRUE(OpenTensor(File(wire::NpyType::kFloat64, {2, 2}), Spec(), v1::TENSOR_LSE).ok());
  const std::string path = File(wire::NpyType::kFloat32, {2, 2, 8});
  EXPECT_THAT(Message(OpenTensor(path, Spec(), v1::TENSOR_K).status()),
              AllOf(HasSubstr(path), HasSubstr("kv_heads of K is 2 (axis 1 of shape (2, 2, 8))"),
                    HasSubstr("the spec says 1")));
  EXPECT_THAT(
      Message(OpenTensor(File(wire::NpyType::kFloat32, {2, 16}), Spec(), v1::TENSOR_Q).status()),
      HasSubstr("Q has shape (2, 16), expected (2, 2, 8): [tokens, heads, head_dim]"));
}

TEST_F(Tensors, HaveTheSpecsType) {
  const auto open = [this](wire::NpyType type, DataType dtype) {
    return OpenTensor(File(type, {2, 2, 8}), Spec(dtype), v1::TENSOR_Q).status();
  };
  EXPECT_TRUE(open(wire::NpyType::kFloat16, DataType::kFloat16).ok());
  for (wire::NpyType type :
       {wire::NpyType::kRaw16, wire::NpyType::kUInt16, wire::NpyType::kInt16}) {
    EXPECT_TRUE(open(type, DataType::kBFloat16).ok());
  }
  EXPECT_THAT(Message(open(wire::NpyType::kFloat64, DataType::kFloat32)),
              HasSubstr("astype('float32')"));
  EXPECT_THAT(Message(open(wire::NpyType::kFloat16, DataType::kFloat32)),
              HasSubstr("Q has dtype float16 ('<f2'), the spec says dtype float32"));
  EXPECT_FALSE(open(wire::NpyType::kFloat16, DataType::kBFloat16).ok());
  EXPECT_FALSE(open(wire::NpyType::kUInt16, DataType::kFloat16).ok());
}

TEST_F(Tensors, OutputsComeInTheTypeOfTheInput) {
  EXPECT_EQ(OutputType(Spec(), wire::NpyType::kFloat32), wire::NpyType::kFloat32);
  EXPECT_EQ(OutputType(Spec(DataType::kFloat16), wire::NpyType::kFloat16), wire::NpyType::kFloat16);
  EXPECT_EQ(OutputType(Spec(DataType::kBFloat16), wire::NpyType::kUInt16), wire::NpyType::kUInt16);
}

}  // namespace
}  // namespace hilbert_ring::client
