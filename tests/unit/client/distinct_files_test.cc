#include "client/cpp/distinct_files.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using ::testing::HasSubstr;

TEST(CheckDistinct, PathsThatAreNotThereAreComparedByFolderAndName) {
  const TestFiles files;
  const std::string out = files.Path("out.npy");
  EXPECT_FALSE(CheckDistinct({}, {{"--out", out}, {"--lse", files.Path("./out.npy")}}).ok());
  EXPECT_TRUE(CheckDistinct({}, {{"--out", out}, {"--lse", files.Path("lse.npy")}}).ok());
  std::filesystem::create_directory(files.Path("a"));
  std::filesystem::create_directory(files.Path("b"));
  EXPECT_TRUE(CheckDistinct({}, {{"--out", files.Path("a/x")}, {"--lse", files.Path("b/x")}}).ok());
  EXPECT_TRUE(
      CheckDistinct({{"--q", "no/x"}}, {{"--out", "no/x"}, {"--lse", ""}, {"--report", ""}}).ok());
}

// A comparison of all pairs would take hours.
TEST(CheckDistinct, ManyFilesAreLookedAtOnce) {
  const TestFiles files;
  std::vector<NamedFile> inputs, outputs;
  for (int i = 0; i < 30'000; ++i) {
    inputs.push_back({"q", files.Path(absl::StrCat("q", i))});
    outputs.push_back({"out", files.Path(absl::StrCat("out", i))});
  }
  EXPECT_TRUE(CheckDistinct(inputs, outputs).ok());
  outputs.back().path = outputs.front().path + ".partial";
  EXPECT_THAT(std::string(CheckDistinct(inputs, outputs).message()),
              HasSubstr("out0.partial is the same file as the output out "));
}

TEST(CheckDistinct, APlainNameLiesInTheCurrentFolder) {
  const TestFiles files;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(files.Path(""));
  const absl::Status status =
      CheckDistinct({}, {{"--out", "out.npy"}, {"--lse", files.Path("out.npy.partial")}});
  std::filesystem::current_path(before);
  EXPECT_THAT(std::string(status.message()), HasSubstr("written as out.npy.partial at first"));
}

TEST(CheckDistinct, ALinkIsWhatItLeadsTo) {
  const TestFiles files;
  std::filesystem::create_symlink("absent", files.Path("dangling"));
  const std::string absent = files.Path("absent");
  EXPECT_FALSE(CheckDistinct({}, {{"--out", files.Path("dangling")}, {"--lse", absent}}).ok());
  EXPECT_FALSE(CheckDistinct({}, {{"--out", absent}, {"--lse", files.Path("dangling")}}).ok());
  EXPECT_FALSE(CheckDistinct({{"--q", files.Write("absent.partial", "")}},
                             {{"--out", files.Path("dangling")}})
                   .ok());
}

TEST(CheckDistinct, StdoutIsOneOutputAndDevicesAreMany) {
  EXPECT_FALSE(CheckDistinct({}, {{"--out", "-"}, {"--report", "/proc/self/fd/1"}}).ok());
  EXPECT_TRUE(
      CheckDistinct({{"--q", "/dev/null"}}, {{"--report", "/dev/null"}, {"--trace", "/dev/null"}})
          .ok());
}

}  // namespace
}  // namespace hilbert_ring::client
