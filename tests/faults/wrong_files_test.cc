// A worker whose device errs, and writes what it computes to files: with --check-rows the job
// fails, and no file gets its name.
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_cluster.h"
#include "tests/golden/encoder_case.h"
#include "tests/service/encode_call.h"
#include "tests/service/encode_files.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Small enough for all layers, and so large that one of them is computed again.
TEST(WrongRowsInFiles, AreFoundInEncodersJobs) {
  const auto golden = LoadEncoderCase("slide_three_layers");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const std::string models =
      "--model-dir=" + std::filesystem::path(golden->folder).parent_path().string();
  const TestFolder test_folder;
  const EncodeFolder folder(test_folder / "root");
  for (const int64_t tiles : {40, 20'000}) {
    SCOPED_TRACE(tiles);
    auto cluster = StartFaultCluster(
        {.workers = 2,
         .place = WorkerPlace::kBeside,
         .arguments = {"--check-rows=12", "--job-workers=2", models, folder.Argument()},
         .worker_arguments = {models, folder.Argument()},
         .last_worker = HILBERT_RING_WORKER_WrongScores});
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    ASSERT_TRUE(AwaitDataRoot(**cluster, 2));
    const v1::EncodeSpec spec = SpecOf(golden->name, {tiles}, v1::POOLING_NONE);
    const EncodeInputs inputs = ManyTiles(*golden, tiles, 5);
    const auto end =
        EncodeRaw((*cluster)->Channel(), spec, inputs, {.files = folder.Write(spec, inputs)});
    EXPECT_EQ(wire::ReasonOf(end.status()), "ROW_MISMATCH") << end.status();
    EXPECT_THAT(std::string(end.status().message()), HasSubstr("state "));
    EXPECT_THAT(folder.Names(), ElementsAre("TILES.npy", "TILE_COORDS.npy"));
  }
}

}  // namespace
}  // namespace hilbert_ring::testing
