#include "client/cli/raw_output.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <span>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cpp/steady_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::cli {
namespace {

using ::testing::HasSubstr;

absl::Status Write(const std::string& path, std::string_view rows, const ReaderWait& wait) {
  auto out = RawOutput::Open(path, wait);
  if (!out.ok()) return out.status();
  const auto bytes = std::as_bytes(std::span(rows));
  if (absl::Status status = out->Append(bytes); !status.ok()) return status;
  return out->End();
}

const ReaderWait kNoWait{.stopped = [] { return true; }};

TEST(RawOutput, AFileHasTheRowsAndNothingElse) {
  const client::TestFiles files;
  const std::string path = files.Write("out.raw", "a longer result");
  const auto opened = RawOutput::Open(path, kNoWait);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(client::ReadFile(path), "a longer result");
  for (const std::string& file : {path, files.Path("new.raw")}) {
    const absl::Status status = Write(file, "rows", kNoWait);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(client::ReadFile(file), "rows");
  }
}

TEST(RawOutput, AFileThatSomebodyHasOpenIsAddedTo) {
  const client::TestFiles files;
  const std::string log = files.Write("log", "what the shift noted\n");
  const int held = open(log.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_GE(held, 0);
  for (const char* folder : {"/dev/fd/", "/proc/thread-self/fd/"}) {
    const absl::Status status = Write(absl::StrCat(folder, held), "rows", kNoWait);
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(client::ReadFile(log), "what the shift noted\nrowsrows");
  close(held);
}

TEST(RawOutput, APipeIsWaitedForUntilSomebodyReadsIt) {
  const client::TestFiles files;
  const std::string pipe = files.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  int reader = -1, looks = 0;
  const ReaderWait wait{.stopped = [&] {
    if (++looks == 2) reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return false;
  }};
  const absl::Status status = Write(pipe, "rows", wait);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(looks, 2);
  char bytes[8];
  EXPECT_EQ(read(reader, bytes, sizeof(bytes)), 4);
  close(reader);
}

TEST(RawOutput, TheWaitForAReaderHasItsEnd) {
  const client::TestFiles files;
  const std::string pipe = files.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const absl::Status stopped = Write(pipe, "rows", kNoWait);
  EXPECT_EQ(stopped.code(), absl::StatusCode::kCancelled) << stopped;
  const absl::Time until = client::SteadyNow() + absl::Milliseconds(120);
  const absl::Status late = Write(pipe, "rows", {.stopped = [] { return false; }, .until = until});
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_GE(client::SteadyNow(), until);
  for (const absl::Status& status : {stopped, late}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("/pipe: "));
  }
}

}  // namespace
}  // namespace hilbert_ring::cli
