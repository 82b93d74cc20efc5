#include "client/cpp/job_files.h"

#include <cmath>
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

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(ReadJob, CoordinatesMustMatchTheSpec) {
  const std::string with = GoldenPath("hilbert_coords", "case.json");
  const std::string coords = GoldenPath("hilbert_coords", "coords.npy");
  EXPECT_TRUE(ReadJob({.spec = with, .coords = coords}).ok());
  EXPECT_THAT(
      Message(ReadJob({.spec = GoldenPath("dense", "case.json"), .coords = coords}).status()),
      HasSubstr("has no coordinates"));
}

// A folder with the coordinates of two tokens, and specs that refer to them.
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

TEST_F(CoordsFile, OfBiasesMustFit) {
  const auto message = [&](const std::string& alibi, const std::string& file) {
    return Message(ReadJob({.spec = Spec(R"("window": 0)"),
                            .fields = R"({"ordering": null, "alibi": )" + alibi + "}",
                            .bias_coords = file})
                       .status());
  };
  const std::string coords = R"({"slopes": [1], "distance": "coords"})";
  const std::string right = files_.Path("jobs/b.npy");
  files_.WriteNpy("jobs/b.npy", wire::NpyType::kFloat32, {2, 3}, std::vector<float>(6));
  files_.WriteNpy("jobs/long.npy", wire::NpyType::kFloat32, {3, 2}, std::vector<float>(6));
  files_.WriteNpy("jobs/wide.npy", wire::NpyType::kFloat32, {2, 4}, std::vector<float>(8));
  EXPECT_EQ(message(coords, right), "");
  for (const char* name : {"c", "long", "wide"}) {
    EXPECT_THAT(message(coords, files_.Path(absl::StrCat("jobs/", name, ".npy"))),
                HasSubstr("must be float32 (2, 2 or 3) in C order"));
  }
  EXPECT_THAT(message(R"({"slopes": [1], "distance": "coords", "axes": 2})", right),
              HasSubstr("must be float32 (2, 2) in C order"));
  files_.WriteNpy("jobs/far.npy", wire::NpyType::kFloat32, {2, 2},
                  std::vector<float>{0, 0, 0, -HUGE_VALF});
  EXPECT_THAT(message(coords, files_.Path("jobs/far.npy")), HasSubstr("bias_coords[1][1] is -inf"));
  EXPECT_THAT(message(R"({"slopes": [1]})", right), HasSubstr("alibi.distance is tokens"));
  EXPECT_THAT(message(coords, ""), HasSubstr("bias_coords are missing"));
}

TEST_F(CoordsFile, LiesInTheSpecsFolder) {
  for (const std::string& name : {std::string("c.npy"), files_.Path("jobs/c.npy")}) {
    const std::string spec = Spec(absl::StrCat("\"coords_file\": \"", name, "\""));
    const auto job = ReadJob({.spec = spec});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_THAT(job->coordinates->All(), ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_EQ(job->spec.ordering->coordinate_axes, 3);
    EXPECT_TRUE(std::filesystem::equivalent(job->coords_path, files_.Path("jobs/c.npy")));
  }
  const auto inline_rows = ReadJob({.spec = Spec(R"("coords": [[1, 2], [3, 4]])")});
  ASSERT_TRUE(inline_rows.ok()) << inline_rows.status();
  EXPECT_THAT(inline_rows->coordinates->All(), ElementsAre(1, 2, 3, 4));
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
      AllOf(HasSubstr("c.npy: has 3 axes"), HasSubstr("must have 2 (ordering.coords_axes)")));
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

TEST(ReadJob, ErrorsNameFileAndField) {
  const TestFiles files;
  EXPECT_EQ(ReadJob({.spec = files.Path("none.json")}).status().code(),
            absl::StatusCode::kNotFound);
  for (const auto& [json, named] :
       {std::pair{"{", "malformed"},
        {R"({"heads": 1, "head_dim": 8, "segments": [2], "dilations": [1]})", "tokens"},
        {R"({"tokens": 2, "heads": 1, "head_dim": 9, "segments": [2], "dilations": [1]})",
         "head_dim"}}) {
    const std::string spec = files.Write("spec.json", json);
    EXPECT_THAT(Message(ReadJob({.spec = spec}).status()),
                AllOf(HasSubstr(spec), HasSubstr(named)));
  }
  EXPECT_FALSE(ReadJob({.spec = files.Path("")}).ok());
}

TEST(OpenTensor, HasTheSpecsShape) {
  const TestFiles files;
  const JobSpec spec = {.tokens = 2, .heads = 2, .kv_heads = 1, .head_dim = 8, .value_dim = 16};
  const auto open = [&](const std::vector<int64_t>& shape, v1::Tensor tensor) {
    int64_t elements = 1;
    for (const int64_t axis : shape) elements *= axis;
    return OpenTensor(files.WriteNpy("t.npy", wire::NpyType::kFloat32, shape,
                                     std::vector<float>(static_cast<size_t>(elements))),
                      spec, tensor)
        .status();
  };
  EXPECT_TRUE(open({2, 2, 8}, v1::TENSOR_Q).ok());
  EXPECT_TRUE(open({2, 1, 16}, v1::TENSOR_V).ok());
  EXPECT_TRUE(open({2, 2, 16}, v1::TENSOR_OUT).ok());
  EXPECT_TRUE(open({2, 2}, v1::TENSOR_LSE).ok());
  EXPECT_THAT(Message(open({2, 2, 8}, v1::TENSOR_K)),
              HasSubstr("kv_heads of K is 2 (axis 1 of shape (2, 2, 8)), must be 1 (the spec)"));
  EXPECT_EQ(OutputType(spec, wire::NpyType::kFloat32), wire::NpyType::kFloat32);
  JobSpec bits = spec;
  bits.dtype = DataType::kBFloat16;
  EXPECT_EQ(OutputType(bits, wire::NpyType::kUInt16), wire::NpyType::kUInt16);
}

}  // namespace
}  // namespace hilbert_ring::client
