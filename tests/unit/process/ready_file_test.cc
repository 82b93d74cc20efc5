#include "server/process/ready_file.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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

TEST_F(ReadyFileTest, AnEarlierProcessesFileIsRemoved) {
  std::ofstream(path_) << "{\"pid\":1}\n";
  EXPECT_TRUE(ReadyFile::Check(path_).ok());
  const ReadyFile file(path_);
  EXPECT_TRUE(Eventually([this] { return !IsThere(); }));
}

TEST_F(ReadyFileTest, OtherFilesStay) {
  const std::string fifo = folder_ / "fifo", socket = folder_ / "socket", text = folder_ / "text",
                    list = folder_ / "list", no_pid = folder_ / "no_pid", empty = folder_ / "empty",
                    large = folder_ / "large", link = folder_ / "link";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ASSERT_EQ(mknod(socket.c_str(), S_IFSOCK | 0600, 0), 0);
  std::ofstream(text) << "a secret\n";
  std::ofstream(list) << "[1]\n";
  std::ofstream(no_pid) << "{\"pid\":\"1\"}\n";
  std::ofstream(empty).flush();
  std::ofstream(large) << "{\"pid\":1}" << std::string(1 << 20, ' ');
  std::ofstream(path_) << "{\"pid\":1}\n";
  std::filesystem::create_symlink(path_, link);
  const testing::CapturedLog log;
  for (const std::string& path : {std::string("/dev/null"), folder_.path(), fifo, socket, text,
                                  list, no_pid, empty, large, link}) {
    const auto before = std::filesystem::symlink_status(path).type();
    const absl::Status status = ReadyFile::Check(path);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << path;
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat("--ready-file ", path, " ")));
    {
      ReadyFile file(path);
      file.Show({}, {});
      EXPECT_TRUE(Eventually([&] { return absl::StrContains(log.text(), status.message()); }));
    }
    EXPECT_EQ(std::filesystem::symlink_status(path).type(), before) << path;
  }
  EXPECT_EQ(FileText(text), "a secret\n");
  for (const char* absent : {"", "/no/such/folder/ready", "/dev/null/ready"}) {
    EXPECT_TRUE(ReadyFile::Check(absent).ok()) << absent;
  }
}

TEST_F(ReadyFileTest, TwoProcessesDoNotShareOne) {
  std::optional<ReadyFile> first(path_);
  first->Show({{"grpc_port", 1}}, {});
  ASSERT_TRUE(Eventually([this] { return IsThere(); }));
  const absl::Status status = ReadyFile::Check(path_);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(
      absl::StrContains(status.message(), absl::StrCat("is the ready file of process ", getpid())))
      << status;
  const std::string text = FileText(path_);
  {
    const testing::CapturedLog log;
    ReadyFile second(path_);
    second.Show({{"grpc_port", 2}}, {});
    EXPECT_TRUE(Eventually([&] { return absl::StrContains(log.text(), status.message()); }));
  }
  EXPECT_EQ(FileText(path_), text);
  first->Show({{"grpc_port", 3}}, {});
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(FileText(path_), ":3"); }));
  first.reset();
  EXPECT_FALSE(IsThere());
}

TEST_F(ReadyFileTest, AFailedWriteIsLogged) {
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

}  // namespace
}  // namespace hilbert_ring::server
