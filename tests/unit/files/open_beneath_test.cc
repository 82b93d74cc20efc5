#include "server/files/open_beneath.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_folder.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

class OpenBeneathTest : public ::testing::Test {
 protected:
  OpenBeneathTest() {
    std::filesystem::create_directories(folder_ / "root/in/deep");
    std::filesystem::create_directory(folder_ / "outside");
    Write("outside/secret", "secret");
    Write("root/in/deep/file", "there");
    root_ = *OpenRoot(folder_ / "root");
  }

  void Write(const std::string& path, const std::string& text) {
    std::ofstream(folder_ / path) << text;
  }

  std::string ReasonOf(const std::string& path, int flags = O_RDONLY) {
    const auto file = OpenFile(root_.number(), path, flags);
    if (file.ok()) return "opened";
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(path.substr(0, 100)));
    return wire::ReasonOf(file.status());
  }

  testing::TestFolder folder_;
  Descriptor root_;
};

TEST_F(OpenBeneathTest, AFileBeneathTheRootIsOpened) {
  const auto file = OpenFile(root_.number(), "in/deep/file", O_RDONLY);
  ASSERT_TRUE(file.ok()) << file.status();
  char text[8] = {};
  EXPECT_EQ(read(file->number(), text, sizeof(text)), 5);
  EXPECT_STREQ(text, "there");
  EXPECT_EQ(fcntl(file->number(), F_GETFD), FD_CLOEXEC);
}

TEST_F(OpenBeneathTest, NoPathLeadsOut) {
  for (const char* path : {"../outside/secret", "in/../../outside/secret", "/etc/passwd", "", ".",
                           "in//deep/file", "in/deep/", "./in/deep/file", ".hilbert-ring-x"}) {
    EXPECT_EQ(ReasonOf(path), "FILE_PATH") << path;
  }
  EXPECT_EQ(ReasonOf(std::string(5000, 'a')), "FILE_PATH");
  EXPECT_EQ(ReasonOf(std::string("a\0b", 3)), "FILE_PATH");
}

TEST_F(OpenBeneathTest, NoLinkIsFollowed) {
  std::filesystem::create_symlink("../outside", folder_ / "root/link");
  std::filesystem::create_symlink("deep", folder_ / "root/in/near");
  std::filesystem::create_symlink("file", folder_ / "root/in/deep/alias");
  EXPECT_EQ(ReasonOf("link/secret"), "FILE_PATH");
  EXPECT_EQ(ReasonOf("in/near/file"), "FILE_PATH");
  EXPECT_EQ(ReasonOf("in/deep/alias"), "FILE_PATH");
}

TEST_F(OpenBeneathTest, OnlyAFileIsOpened) {
  ASSERT_EQ(mkfifo((folder_ / "root/fifo").c_str(), 0600), 0);
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  (folder_ / "root/socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(ReasonOf("in"), "FILE_PATH");
  EXPECT_EQ(ReasonOf("fifo"), "FILE_PATH");  // the open does not wait for a writer
  EXPECT_EQ(ReasonOf("fifo", O_WRONLY), "FILE_PATH");
  EXPECT_EQ(ReasonOf("socket"), "FILE_PATH");
  EXPECT_EQ(ReasonOf("none"), "FILE_NOT_FOUND");
  EXPECT_EQ(ReasonOf("in/deep/file/on"), "FILE_NOT_FOUND");
  close(listener);
}

TEST_F(OpenBeneathTest, ADeviceIsNotOpened) {
  if (mknod((folder_ / "root/null").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) {
    ASSERT_EQ(errno, EPERM) << std::strerror(errno);
    GTEST_SKIP() << "this user makes no devices: " << std::strerror(EPERM);
  }
  EXPECT_EQ(ReasonOf("null"), "FILE_PATH");
}

TEST(OpenRootTest, AFolderThatIsNotThereIsNamed) {
  const auto root = OpenRoot("/nowhere/at/all");
  EXPECT_EQ(wire::ReasonOf(root.status()), "DATA_ROOT_GONE");
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("/nowhere/at/all"));
}

TEST(FileErrorTest, EachHasItsReason) {
  EXPECT_EQ(wire::ReasonOf(FileError("f", "cannot write", ENOSPC)), "FILE_NO_SPACE");
  EXPECT_EQ(wire::ReasonOf(FileError("f", "cannot write", EDQUOT)), "FILE_NO_SPACE");
  EXPECT_EQ(wire::ReasonOf(FileError("f", "cannot open", EACCES)), "FILE_NOT_PERMITTED");
  EXPECT_EQ(wire::ReasonOf(FileError("f", "cannot read", EIO)), "FILE_IO");
  EXPECT_EQ(wire::ReasonOf(FileError("f", "cannot read", ESTALE)), "FILE_CHANGED");
}

}  // namespace
}  // namespace hilbert_ring::server
