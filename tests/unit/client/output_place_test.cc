#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cpp/pending_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

TEST(FindOutput, WhatIsNoRegularFileIsWrittenInPlace) {
  const TestFiles files;
  ASSERT_EQ(mkfifo(files.Path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(FindOutput(files.Path("pipe"))->in_place);
  EXPECT_TRUE(FindOutput("/dev/null")->in_place);
  EXPECT_TRUE(FindOutput(files.Path(""))->in_place);
}

TEST(FindOutput, DescriptorsAreFoundByAnyLinkToThem) {
  const TestFiles files;
  fs::create_symlink("/proc/self/fd/1", files.Path("stdout"));
  fs::create_symlink("stdout", files.Path("again"));
  for (const std::string& path : {files.Path("stdout"), files.Path("again"), std::string("-"),
                                  absl::StrCat("/proc/", getpid(), "/fd/1")}) {
    const auto place = FindOutput(path);
    ASSERT_TRUE(place.ok()) << place.status();
    EXPECT_EQ(place->descriptor, 1) << path;
    EXPECT_TRUE(place->in_place);
    EXPECT_TRUE(IsStdout(path));
  }
  EXPECT_FALSE(IsStdout(""));
  EXPECT_FALSE(IsStdout("1"));
  EXPECT_TRUE(FindOutput(absl::StrCat("/proc/", getppid(), "/fd/1"))->in_place);
}

TEST(FindOutput, LinksInACircleAreAnError) {
  const TestFiles files;
  fs::create_symlink("b", files.Path("a"));
  fs::create_symlink("a", files.Path("b"));
  EXPECT_THAT(std::string(FindOutput(files.Path("a")).status().message()),
              HasSubstr("more than 40 symbolic links"));
}

}  // namespace
}  // namespace hilbert_ring::client
