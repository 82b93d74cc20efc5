#include "client/cpp/npy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/test_files.h"

namespace {

// A disk that is full after the attempt to take space: this program's calls replace libc's.
struct FullDisk {
  bool filled = false;
};
FullDisk* full_disk = nullptr;

}  // namespace

extern "C" {

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): libc's names begin with __.
int posix_fallocate(int fd, off_t offset, off_t bytes) {
  if (full_disk == nullptr) return fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
  full_disk->filled = true;
  return ENOSPC;
}

int fstatvfs(int /*fd*/, struct statvfs* disk) noexcept {
  *disk = {};
  disk->f_frsize = 1;
  disk->f_bavail = full_disk != nullptr && full_disk->filled ? 0 : 65'536;
  return 0;
}
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

}  // extern "C"

namespace hilbert_ring::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

int64_t ResidentBytes(const std::string& path) {
  std::ifstream mappings("/proc/self/smaps");
  std::string line;
  bool of_file = false;
  int64_t bytes = 0;
  while (std::getline(mappings, line)) {
    if (line.find('-') < line.find(' ')) of_file = line.ends_with(path);
    long long kib = 0;
    if (of_file && std::sscanf(line.c_str(), "Rss: %lld kB", &kib) == 1) bytes += kib << 10;
  }
  return bytes;
}

TEST(NpyFile, RowsReleasedInAnyOrderLeaveNoMemoryBehind) {
  const TestFiles files;
  const std::vector<int32_t> values(1 << 20, 7);
  const std::string path =
      files.WriteNpy("a.npy", wire::NpyType::kInt32, {static_cast<int64_t>(values.size())}, values);
  const auto file = NpyFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  int sum = 0;
  for (int64_t byte = 300; byte < file->bytes(); byte += 50'000) {
    sum += static_cast<int>(file->data()[byte]);
  }
  ASSERT_GT(sum, 0);
  ASSERT_GE(ResidentBytes(path), 80 * 4096);
  for (int64_t byte = 300; byte < file->bytes(); byte += 50'000) file->Release(byte, byte + 100);
  EXPECT_LE(ResidentBytes(path), 64 << 10);
}

TEST(NpyWriter, AppearsOnCommit) {
  const TestFiles files;
  const std::string path = files.Path("out.npy");
  auto writer = NpyWriter::Create(path, wire::NpyType::kUInt16, std::vector<int64_t>{3});
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_THAT(files.Names(), ElementsAre("out.npy.partial"));
  struct stat info;
  ASSERT_EQ(stat((path + ".partial").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 134);
  const uint16_t values[] = {7, 8, 9};
  ASSERT_EQ(writer->data().size(), sizeof(values));
  std::memcpy(writer->data().data(), values, sizeof(values));
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_THAT(files.Names(), ElementsAre("out.npy"));
  const auto file = NpyFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(std::memcmp(file->data(), values, sizeof(values)), 0);
}

TEST(NpyWriter, ADiskWithoutRoomSaysWhatWasFreeBeforeTheAttempt) {
  const TestFiles files;
  FullDisk disk;
  full_disk = &disk;
  const absl::Status status = NpyWriter::Create(files.Path("out.npy"), wire::NpyType::kFloat32,
                                                std::vector<int64_t>{1 << 20})
                                  .status();
  full_disk = nullptr;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("4194432 bytes (65536 are free)"));
  EXPECT_THAT(files.Names(), IsEmpty());
}

}  // namespace
}  // namespace hilbert_ring::client
