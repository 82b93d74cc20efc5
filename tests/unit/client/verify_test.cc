#include "client/cpp/verify.h"

#include <cstring>
#include <limits>
#include <string>

#include "client/cpp/job_files.h"
#include "gtest/gtest.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

struct GoldenFiles {
  explicit GoldenFiles(const std::string& name)
      : job(ReadJob({.spec = GoldenPath(name, "case.json"),
                     .coords = IfThere(name, "coords.npy"),
                     .bias_coords = IfThere(name, "bias_coords.npy")})
                .value()),
        q(OpenTensor(GoldenPath(name, "q.npy"), job.spec, v1::TENSOR_Q).value()),
        k(OpenTensor(GoldenPath(name, "k.npy"), job.spec, v1::TENSOR_K).value()),
        v(OpenTensor(GoldenPath(name, "v.npy"), job.spec, v1::TENSOR_V).value()),
        out_path(GoldenPath(name, "out.npy")),
        lse_path(GoldenPath(name, "lse.npy")) {}

  static std::string IfThere(const std::string& name, const std::string& file) {
    const std::string path = GoldenPath(name, file);
    return std::filesystem::exists(path) ? path : "";
  }

  absl::StatusOr<VerifyResult> Verify() const {
    const auto out = OpenTensor(out_path, job.spec, v1::TENSOR_OUT);
    if (!out.ok()) return out.status();
    const auto lse = OpenTensor(lse_path, job.spec, v1::TENSOR_LSE);
    if (!lse.ok()) return lse.status();
    return client::Verify(
        {.spec = job.spec,
         .coordinates = job.coordinates ? &*job.coordinates : nullptr,
         .bias_coordinates = job.bias_coordinates ? &*job.bias_coordinates : nullptr,
         .q = q,
         .k = k,
         .v = v,
         .out = *out,
         .lse = &*lse},
        {.rows = 40, .threads = 2});
  }

  Job job;
  NpyFile q, k, v;
  std::string out_path, lse_path;
};

TEST(Verify, AcceptsEveryGoldenCase) {
  for (const auto& entry : std::filesystem::directory_iterator(HILBERT_RING_GOLDEN_DIR)) {
    const std::string name = entry.path().filename();
    const auto result = GoldenFiles(name).Verify();
    ASSERT_TRUE(result.ok()) << name << ": " << result.status();
    EXPECT_TRUE(result->ok()) << name << ": token " << result->out.worst.token << " head "
                              << result->out.worst.head << " " << result->out.worst.actual << " vs "
                              << result->out.worst.expected;
  }
}

std::string Changed(const TestFiles& files, const std::string& path, int64_t element, float value) {
  std::string bytes = ReadFile(path);
  const int64_t offset = wire::ParseNpyHeader(bytes)->data_offset;
  std::memcpy(bytes.data() + offset + element * 4, &value, 4);
  return files.Write("changed.npy", bytes);
}

TEST(Verify, NamesTheWorstRow) {
  const TestFiles files;
  GoldenFiles golden("dense");  // [128, 2, 32]
  golden.out_path = Changed(files, golden.out_path, (127 * 2 + 1) * 32 + 5, 9.0f);
  const auto result = golden.Verify();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->ok());
  EXPECT_TRUE(result->lse->ok());
  EXPECT_EQ(result->out.worst.token, 127);
  EXPECT_EQ(result->out.worst.head, 1);
  EXPECT_EQ(result->out.worst.dim, 5);
  EXPECT_EQ(result->out.worst.actual, 9.0);
  EXPECT_GT(result->out.worst.excess, 1);
}

TEST(Verify, FindsNanOutsideTheSample) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const TestFiles files;
  GoldenFiles golden("dense");
  for (int64_t token = 0; token < 128; token += 9) {
    golden.out_path = Changed(files, GoldenPath("dense", "out.npy"), token * 64, nan);
    const auto result = golden.Verify();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_FALSE(result->ok());
    EXPECT_EQ(result->out.not_finite, 1);
    EXPECT_EQ(result->out.first_not_finite_token, token);
  }
}

TEST(Verify, SaysHowManyRowsItCannotJudge) {
  const auto all = GoldenFiles("nan_key").Verify();  // every row sees a NaN
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_TRUE(all->ok());
  EXPECT_GT(all->not_judged, 0);
  EXPECT_GT(all->out.not_finite, 0);
  const auto none = GoldenFiles("dense").Verify();
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->rows, 40);
  EXPECT_EQ(none->not_judged, 0);
}

TEST(Verify, MinusInfinityIsAnLseOnlyWhereNothingWasSeen) {
  const TestFiles files;
  GoldenFiles golden("dense");
  golden.lse_path = Changed(files, golden.lse_path, 0, -std::numeric_limits<float>::infinity());
  const auto result = golden.Verify();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->lse->not_finite, 0);
  EXPECT_FALSE(result->ok());
  EXPECT_EQ(result->lse->worst.token, 0);
}

}  // namespace
}  // namespace hilbert_ring::client
