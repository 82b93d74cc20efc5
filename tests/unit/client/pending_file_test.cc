#include "client/cpp/pending_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/test_files.h"

namespace {

// Side effects of the calls below, which replace libc's.
struct SystemCalls {
  std::function<void()> before_lock;  // once
  int sync_error = 0;                 // errno of fsync; 0: success
  std::vector<std::string> done;      // "sync" and "rename", with their arguments
};

SystemCalls* watched = nullptr;

class WatchedCalls : public SystemCalls {
 public:
  WatchedCalls() { watched = this; }
  ~WatchedCalls() { watched = nullptr; }
};

int ModeOf(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? static_cast<int>(info.st_mode & ACCESSPERMS) : -1;
}

std::string NameOf(int fd) {
  return std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd)).filename();
}

}  // namespace

extern "C" {

int flock(int fd, int operation) noexcept {
  if (watched != nullptr && watched->before_lock) std::exchange(watched->before_lock, nullptr)();
  return static_cast<int>(syscall(SYS_flock, fd, operation));
}

int fsync(int fd) {
  if (watched != nullptr) watched->done.push_back(absl::StrCat("sync ", NameOf(fd)));
  if (watched != nullptr && watched->sync_error != 0) {
    errno = watched->sync_error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name)
int rename(const char* from, const char* to) noexcept {
  if (watched != nullptr) {
    watched->done.push_back(
        absl::StrCat("rename ", std::filesystem::path(from).filename().string()));
  }
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

}  // extern "C"

namespace hilbert_ring::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PendingFile, ASecondWriterLeavesWhatTheFirstHasJustCommittedAlone) {
  const TestFiles files;
  const std::string path = files.Path("out.npy");
  auto first = PendingFile::Create(path);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(first->Append("first").ok());
  WatchedCalls calls;
  // The second has opened the file of the first, but has no lock yet.
  calls.before_lock = [&first] { EXPECT_TRUE(first->Commit().ok()); };
  auto second = PendingFile::Create(path);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(ReadFile(path), "first");
  ASSERT_TRUE(second->Append("second").ok());
  EXPECT_EQ(ReadFile(path), "first");
  ASSERT_TRUE(second->Commit().ok());
  EXPECT_EQ(ReadFile(path), "second");
  EXPECT_THAT(files.Names(), ElementsAre("out.npy"));
}

TEST(PendingFile, WhatAKilledWriterLeftIsReplaced) {
  const TestFiles files;
  const std::string other = files.Write("other", "somebody's");
  files.Write("killed.npy.partial", "half of a longer file");
  const std::string empty = files.Write("empty", "");
  std::filesystem::create_hard_link(other, files.Path("linked.npy.partial"));
  std::filesystem::create_hard_link(empty, files.Path("empty.npy.partial"));
  for (const char* name : {"killed.npy", "linked.npy", "empty.npy"}) {
    auto file = PendingFile::Create(files.Path(name));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Append("new").ok());
    ASSERT_TRUE(file->Commit().ok());
    EXPECT_EQ(ReadFile(files.Path(name)), "new");
  }
  EXPECT_EQ(ReadFile(other), "somebody's");
  EXPECT_EQ(ReadFile(empty), "");
}

TEST(PendingFile, WhatItReplacesLeavesItItsPermissions) {
  const TestFiles files;
  const mode_t mask = umask(022);
  for (const auto& [before, while_written, after] :
       {std::tuple(0600, 0600, 0600), std::tuple(0444, 0600, 0444), std::tuple(0666, 0600, 0666),
        std::tuple(-1, 0644, 0644)}) {
    const std::string name = absl::StrCat("out", before), path = files.Path(name);
    if (before >= 0) {
      ASSERT_EQ(chmod(files.Write(name, "old").c_str(), before), 0);
    }
    auto file = PendingFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(ModeOf(PartialPath(path)), while_written) << before;
    ASSERT_TRUE(file->Commit().ok());
    EXPECT_EQ(ModeOf(path), after) << before;
  }
  umask(mask);
}

TEST(PendingFile, ANameMayBeAsLongAsTheSystemTakes) {
  const TestFiles files;
  for (const size_t bytes : {247, 248, 255}) {
    const std::string path = files.Path(std::string(bytes, 'n'));
    auto file = PendingFile::Create(path);
    ASSERT_TRUE(file.ok()) << bytes << ": " << file.status();
    const auto second = PendingFile::Create(path).status();
    EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists) << second;
    EXPECT_TRUE(PendingFile::Create(files.Path(std::string(bytes - 1, 'n') + "m")).ok());
    ASSERT_TRUE(file->Append("new").ok());
    ASSERT_TRUE(file->Commit().ok());
    EXPECT_EQ(ReadFile(path), "new");
  }
  const auto longer = PendingFile::Create(files.Path(std::string(256, 'n'))).status();
  EXPECT_THAT(std::string(longer.message()), HasSubstr("cannot write: File name too long"));
}

TEST(PendingFile, APartialThatIsNoFileOfItsOwnIsRefused) {
  const TestFiles files;
  const std::string other = files.Write("other", "somebody's");
  std::filesystem::create_symlink(other, files.Path("link.npy.partial"));
  ASSERT_EQ(mkfifo(files.Path("pipe.npy.partial").c_str(), 0600), 0);
  for (const char* name : {"link.npy", "pipe.npy"}) {
    const absl::Status status = PendingFile::Create(files.Path(name)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(files.Path(name) + ".partial"));
  }
  EXPECT_EQ(ReadFile(other), "somebody's");
  EXPECT_THAT(files.Names(), ElementsAre("link.npy.partial", "other", "pipe.npy.partial"));
}

TEST(PendingFile, ALinkStaysAndItsTargetIsWritten) {
  const TestFiles files;
  files.Write("target", "before");
  std::filesystem::create_symlink("target", files.Path("link"));
  std::filesystem::create_symlink("absent", files.Path("dangling"));
  for (const auto& [link, target] :
       {std::pair("link", "target"), std::pair("dangling", "absent")}) {
    auto file = PendingFile::Create(files.Path(link));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Append("new").ok());
    ASSERT_TRUE(file->Commit().ok());
    EXPECT_EQ(ReadFile(files.Path(target)), "new");
  }
  EXPECT_TRUE(std::filesystem::is_symlink(files.Path("dangling")));
  EXPECT_THAT(files.Names(), ElementsAre("absent", "dangling", "link", "target"));
}

TEST(PendingFile, WhatIsNoRegularFileIsWrittenWhereItIs) {
  const TestFiles files;
  const std::string pipe = files.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(PendingFile::Create(pipe).status().code(), absl::StatusCode::kFailedPrecondition);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  // A descriptor of this process for a regular file that has bytes.
  const int held = open(files.Path("held").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(write(held, "first ", 6), 6);
  std::filesystem::create_symlink(absl::StrCat("/proc/self/fd/", held), files.Path("link"));
  for (const std::string& path : {pipe, files.Path("link")}) {
    auto file = PendingFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Append("new").ok());
    const absl::Status status = file->Commit();
    ASSERT_TRUE(status.ok()) << status;
  }
  char bytes[8];
  EXPECT_EQ(read(reader, bytes, sizeof(bytes)), 3);
  EXPECT_EQ(ReadFile(files.Path("held")), "first new");
  EXPECT_TRUE(std::filesystem::is_symlink(files.Path("link")));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_THAT(files.Names(), ElementsAre("held", "link", "pipe"));
  EXPECT_EQ(PendingFile::Create(files.Path("")).status().code(),
            absl::StatusCode::kInvalidArgument);
  close(held);
  close(reader);
}

// Another process has the file: a link that is opened, not a descriptor of this process.
TEST(PendingFile, AFileThatSomebodyHasOpenIsAddedTo) {
  const TestFiles files;
  const std::string log = files.Write("log", "what the shift noted\n");
  const int held = open(log.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_GE(held, 0);
  auto file = PendingFile::Create(absl::StrCat("/proc/thread-self/fd/", held));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Append("new").ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(ReadFile(log), "what the shift noted\nnew");
  EXPECT_THAT(files.Names(), ElementsAre("log"));
  close(held);
}

TEST(PendingFile, AFileThatWasReplacedMeanwhileIsNotCommitted) {
  const TestFiles files;
  const std::string path = files.Write("out.npy", "before");
  {
    auto file = PendingFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    std::filesystem::remove(path + ".partial");
    files.Write("out.npy.partial", "somebody's");
    const absl::Status status = file->Commit();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path + ".partial"));
  }
  EXPECT_EQ(ReadFile(path), "before");
  EXPECT_EQ(ReadFile(path + ".partial"), "somebody's");
}

TEST(PendingFile, IsOnDiskBeforeItHasItsName) {
  const TestFiles files;
  const std::string folder = std::filesystem::path(files.Path("")).parent_path().filename();
  auto file = PendingFile::Create(files.Path("out.npy"));
  ASSERT_TRUE(file.ok()) << file.status();
  WatchedCalls calls;
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_THAT(calls.done, ElementsAre("sync out.npy.partial", "rename out.npy.partial",
                                      absl::StrCat("sync ", folder)));
}

TEST(PendingFile, AFileThatIsNotOnDiskReplacesNothing) {
  const TestFiles files;
  const std::string path = files.Write("out.npy", "before");
  {
    auto file = PendingFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    WatchedCalls calls;
    calls.sync_error = ENOSPC;
    const absl::Status status = file->Commit();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path + ".partial"));
  }
  EXPECT_EQ(ReadFile(path), "before");
  EXPECT_THAT(files.Names(), ElementsAre("out.npy"));
}

}  // namespace
}  // namespace hilbert_ring::client
