#include "client/cpp/by_reference.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/run_engine.h"
#include "tests/service/by_reference.h"
#include "tests/support/cluster.h"
#include "tests/support/plain_spec.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ByReferencePlaces : public ByReferenceTest,
                          public ::testing::WithParamInterface<WorkerPlace> {};
INSTANTIATE_TEST_SUITE_P(Places, ByReferencePlaces,
                         ::testing::Values(WorkerPlace::kLocal, WorkerPlace::kRemote,
                                           WorkerPlace::kUnshared),
                         [](const auto& info) { return PlaceName(info.param); });

TEST_P(ByReferencePlaces, OutputsAreThoseOfRowsThatAreSentAndNoRowPassesTheService) {
  Start({}, GetParam());
  JobSpec spec = PlainSpec({.tokens = 3000, .heads = 4, .dim = 16, .segment = 512});
  for (const int round : {0, 1, 2, 3}) {
    spec.ordering.reset();
    spec.dtype = round == 1 ? DataType::kBFloat16 : DataType::kFloat32;
    if (round == 1) spec.ordering = Ordering{};  // the square's
    if (round == 2) spec.ordering = Ordering{.scope = OrderScope::kKv};
    if (round == 3) {
      spec.ordering = Ordering{.coordinate_axes = 2};
      spec.alibi = Alibi{{0.25, 0, 1, -0.125}, 3};
    }
    const EngineInputs inputs = RandomInputs(spec, 7 + static_cast<uint64_t>(round));
    const v1::Open open = Write(spec, inputs);
    const RowBytes before = RowBytesOf(*cluster_);
    const auto report = Run(open);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(RowBytesOf(*cluster_), before);
    int64_t read = 0, written = 0;
    for (const v1::WorkerReport& worker : report->workers()) {
      read += worker.file_bytes_read();
      written += worker.file_bytes_written();
    }
    const int64_t row = 64 * ElementBytes(spec.dtype);
    EXPECT_EQ(read, spec.tokens * 3 * row);
    EXPECT_EQ(written, spec.tokens * (row + 4 * 4));
    ExpectAsSent(spec, inputs);
    EXPECT_THAT(Stray(), IsEmpty());
  }
}

TEST_F(ByReferenceTest, RowsAreCheckedWhereTheyWereWritten) {
  Start({"--check-rows=16"});
  const JobSpec spec = PlainSpec({.tokens = 200});
  EngineInputs inputs = RandomInputs(spec, 3);
  auto report = Run(Write(spec, inputs));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows_checked(), 16);
  EXPECT_EQ(report->rows_not_finite(), 0);
  inputs.v[40] = std::nanf("");
  report = Run(Write(spec, inputs));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->rows_not_finite(), 200);
  EXPECT_EQ(report->first_row_not_finite(), 0);
}

TEST_F(ByReferenceTest, TheClientPassesFilesThatBothSeeByPath) {
  Start();
  const JobSpec spec = PlainSpec();
  const EngineInputs inputs = RandomInputs(spec, 4);
  Write(spec, inputs);
  const std::string in = folder_ / "root/in/";
  std::filesystem::create_symlink(in + "Q.npy", folder_ / "q.npy");  // the client follows it
  std::vector<client::TensorPath> paths = {{v1::TENSOR_Q, folder_ / "q.npy"},
                                           {v1::TENSOR_K, in + "../in/K.npy"},
                                           {v1::TENSOR_V, in + "V.npy"},
                                           {v1::TENSOR_OUT, in + "OUT.npy"},
                                           {v1::TENSOR_LSE, in + "LSE.npy"}};
  const auto files = client::NameFiles(cluster_->Channel(), paths);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->front().path(), "in/Q.npy");
  const auto report = client::AttendInFiles(cluster_->address(), spec, *files);
  ASSERT_TRUE(report.ok()) << report.status();
  ExpectAsSent(spec, inputs);
  paths[3].path = folder_ / "OUT.npy";
  auto refused = client::NameFiles(cluster_->Channel(), paths).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("OUT.npy: does not lie beneath"));
  paths[3].path = in + "\xff.npy";  // protobuf's strings cannot hold it
  refused = client::NameFiles(cluster_->Channel(), paths).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is not UTF-8"));
  refused = client::NameFiles(cluster_->Channel(), paths, {.path = folder_.path()}).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is not the service's data root"));
}

}  // namespace
}  // namespace hilbert_ring::testing
