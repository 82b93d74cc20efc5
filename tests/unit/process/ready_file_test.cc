#include "server/process/ready_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/captured_log.h"
#include "tests/support/manual_time.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::server {
namespace {

using testing::Eventually;
using testing::FileText;

class ReadyFileTest : public ::testing::Test {
 protected:
  bool IsThere() const { return std::filesystem::exists(path_); }

  // What is to be written waits for somebody to read it.
  std::string HangTheDisk() const {
    std::string draft = absl::StrCat(path_, ".", getpid(), ".draft");
    EXPECT_EQ(mkfifo(draft.c_str(), 0600), 0);
    return draft;
  }

  // The thread is in it by now.
  static bool Hangs() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      const std::string folder = task.path();
      if (FileText(folder + "/comm") == "ready_file\n" &&
          absl::StartsWith(FileText(folder + "/syscall"), absl::StrCat(SYS_openat, " "))) {
        return true;
      }
    }
    return false;
  }

  static void LetTheDiskAnswer(const std::string& draft) {
    const int reader = open(draft.c_str(), O_RDONLY | O_NONBLOCK);
    ASSERT_GE(reader, 0);
    EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(draft); }));
    close(reader);
  }

  const testing::TestFolder folder_;
  const std::string path_ = folder_ / "ready.json";
};

TEST_F(ReadyFileTest, IsThereWhileItIsShown) {
  ReadyFile file(path_);
  file.Show({{"grpc_port", 1}, {"http_port", 2}}, {"a:1", "b:2"});
  ASSERT_TRUE(Eventually([this] { return IsThere(); }));
  const auto json = nlohmann::json::parse(FileText(path_));
  EXPECT_EQ(json.at("grpc_port"), 1);
  EXPECT_EQ(json.at("http_port"), 2);
  EXPECT_EQ(json.at("pid"), getpid());
  EXPECT_EQ(json.at("workers").size(), 2u);
  file.Hide();
  EXPECT_TRUE(Eventually([this] { return std::filesystem::is_empty(folder_.path()); }));
}

TEST_F(ReadyFileTest, OneOfAnEarlierProcessGoes) {
  std::ofstream(path_) << "{}\n";
  const ReadyFile file(path_);
  EXPECT_TRUE(Eventually([this] { return !IsThere(); }));
}

TEST_F(ReadyFileTest, GoesWithItsProcess) {
  {
    ReadyFile file(path_);
    file.Show({}, {});
    ASSERT_TRUE(Eventually([this] { return IsThere(); }));
  }
  EXPECT_FALSE(IsThere());
}

TEST_F(ReadyFileTest, WhatCannotBeWrittenIsNotWaitedFor) {
  const testing::CapturedLog log;
  const std::string path = folder_ / "no/such";
  ReadyFile file(path);
  file.Show({}, {});
  ReadyFile none("");
  none.Show({}, {});
  none.Hide();
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(log.text(),
                             absl::StrCat("ready file ", path, ": No such file or directory"));
  })) << log.text();
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(ReadyFileTest, NobodyWaitsForADiskThatDoesNotAnswer) {
  const std::string draft = HangTheDisk();
  std::optional<ReadyFile> file(path_);
  file->Show({}, {});
  ASSERT_TRUE(Eventually(Hangs));
  file->Show({}, {"a:1"});
  file->Hide();
  const auto start = std::chrono::steady_clock::now();
  file.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  LetTheDiskAnswer(draft);
}

TEST_F(ReadyFileTest, WhenTheDiskAnswersTheFileIsAsItWasAskedForLast) {
  const std::string draft = HangTheDisk();
  ReadyFile file(path_);
  file.Show({}, {"a:1"});
  ASSERT_TRUE(Eventually(Hangs));
  file.Show({}, {"b:1"});
  LetTheDiskAnswer(draft);
  // The file that hung gets the name first.
  EXPECT_TRUE(Eventually([this] { return std::filesystem::is_regular_file(path_); }));
  EXPECT_NE(FileText(path_).find("b:1"), std::string::npos) << FileText(path_);
}

}  // namespace
}  // namespace hilbert_ring::server
