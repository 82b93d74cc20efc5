#include "server/files/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OutputFileTest : public ::testing::Test {
 protected:
  OutputFileTest() {
    std::filesystem::create_directories(folder_ / "in");
    data_root_ = *DataRoot::Open(folder_.path());
    root_ = *data_root_->Reach();
  }

  absl::StatusOr<OutputFile> Create(const std::string& path = "in/out.npy") {
    return OutputFile::Create(*data_root_, root_.number(),
                              {.path = path, .header = "head", .data_bytes = 100});
  }

  static int ModeOf(const std::string& path) {
    struct stat found = {};
    return stat(path.c_str(), &found) == 0 ? static_cast<int>(found.st_mode & ACCESSPERMS) : -1;
  }

  std::string Text(const std::string& path) {
    std::ifstream file(folder_ / path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "in")) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  testing::TestFolder folder_;
  std::unique_ptr<DataRoot> data_root_;
  Descriptor root_;
};

TEST_F(OutputFileTest, ItHasItsNameWhenItIsWhole) {
  std::ofstream(folder_ / "in/out.npy") << "before";
  {
    auto output = Create();
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(output->offset(), 4);
    EXPECT_EQ(Text("in/out.npy"), "before");
    EXPECT_EQ(Text(output->unfinished()).size(), 104);
    EXPECT_EQ(Text(output->unfinished()).substr(0, 4), "head");
    ASSERT_TRUE(output->Commit().ok());
  }
  EXPECT_EQ(Text("in/out.npy").size(), 104);
  EXPECT_THAT(Names(), ElementsAre("out.npy"));
}

TEST_F(OutputFileTest, AWriterOfAnOlderOutputDoesNotReachTheNewOne) {
  std::string path;
  Descriptor late;
  {
    const auto given_up = Create();
    path = folder_ / given_up->unfinished();
    late = Descriptor(open(path.c_str(), O_RDWR));
  }
  auto output = Create();
  ASSERT_TRUE(output.ok());
  EXPECT_NE(folder_ / output->unfinished(), path);
  EXPECT_EQ(pwrite(late.number(), "late", 4, 0), 4);
  ASSERT_TRUE(output->Commit().ok());
  EXPECT_EQ(Text("in/out.npy").substr(0, 4), "head");
}

TEST_F(OutputFileTest, AChangedOutputGetsNoName) {
  auto cut = Create("in/a");
  ASSERT_EQ(truncate((folder_ / cut->unfinished()).c_str(), 50), 0);
  EXPECT_EQ(wire::ReasonOf(cut->Commit()), "FILE_CHANGED");
  auto longer = Create("in/a");
  ASSERT_EQ(truncate((folder_ / longer->unfinished()).c_str(), 200), 0);
  EXPECT_EQ(wire::ReasonOf(longer->Commit()), "FILE_CHANGED");
  auto replaced = Create("in/b");
  std::filesystem::remove(folder_ / replaced->unfinished());
  std::ofstream(folder_ / replaced->unfinished()) << "other";
  EXPECT_EQ(wire::ReasonOf(replaced->Commit()), "FILE_CHANGED");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "in/a"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "in/b"));
}

TEST_F(OutputFileTest, ItTakesThePermissionsOfTheReplacedFile) {
  const mode_t mask = umask(022);
  for (const auto& [before, while_written, after] :
       {std::tuple(0600, 0600, 0600), std::tuple(0664, 0644, 0664), std::tuple(-1, 0644, 0644)}) {
    const std::string path = folder_ / "in/out.npy";
    std::filesystem::remove(path);
    if (before >= 0) {
      std::ofstream(path) << "before";
      ASSERT_EQ(chmod(path.c_str(), before), 0);
    }
    auto output = Create();
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(ModeOf(folder_ / output->unfinished()), while_written) << before;
    ASSERT_TRUE(output->Commit().ok());
    EXPECT_EQ(ModeOf(path), after) << before;
  }
  umask(mask);
}

TEST_F(OutputFileTest, AnotherUsersPrivateFileIsNotReplaced) {
  if (geteuid() != 0) GTEST_SKIP() << "root alone can be another user";
  constexpr uid_t kAlice = 1234, kService = 5678;
  ASSERT_EQ(chmod((folder_ / "in").c_str(), 0777), 0);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  const std::string path = folder_ / "in/out.npy";
  std::ofstream(path) << "before";
  ASSERT_EQ(chown(path.c_str(), kAlice, kAlice), 0);
  for (const auto& [mode, reason] : {std::pair(0640, ""), std::pair(0600, "FILE_NOT_PERMITTED")}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    ASSERT_EQ(seteuid(kService), 0);
    const absl::Status status = CheckReplaceable(root_.number(), "in/out.npy");
    ASSERT_EQ(seteuid(0), 0);
    EXPECT_EQ(status.ok() ? "" : wire::ReasonOf(status), reason) << status;
  }
  auto output = Create();  // root's output returns to its owner
  ASSERT_TRUE(output.ok() && output->Commit().ok());
  struct stat found = {};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_uid, kAlice);
  EXPECT_EQ(ModeOf(path), 0600);
}

TEST_F(OutputFileTest, OnlyAFileIsReplaced) {
  std::filesystem::create_directory(folder_ / "in/folder");
  std::filesystem::create_symlink("elsewhere", folder_ / "in/link");
  ASSERT_EQ(mkfifo((folder_ / "in/fifo").c_str(), 0600), 0);
  EXPECT_EQ(wire::ReasonOf(Create("in/folder").status()), "FILE_PATH");
  EXPECT_EQ(wire::ReasonOf(Create("in/link").status()), "FILE_PATH");
  EXPECT_EQ(wire::ReasonOf(Create("in/fifo").status()), "FILE_PATH");
  EXPECT_EQ(wire::ReasonOf(Create("none/out.npy").status()), "FILE_NOT_FOUND");
  EXPECT_EQ(wire::ReasonOf(Create("../out.npy").status()), "FILE_PATH");
}

TEST_F(OutputFileTest, MoreThanTheDiskHasIsRefusedAtOnce) {
  const auto output = OutputFile::Create(*data_root_, root_.number(),
                                         {.path = "in/out.npy", .data_bytes = int64_t{1} << 60});
  EXPECT_EQ(wire::ReasonOf(output.status()), "FILE_NO_SPACE");
  EXPECT_THAT(Names(), IsEmpty());
}

}  // namespace
}  // namespace hilbert_ring::server
