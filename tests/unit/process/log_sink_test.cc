#include "server/process/log_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::server {
namespace {

constexpr int kLines = 5000;  // far more than a pipe or a socket holds

// Two ends: what is written to `to` can be read from `from`.
struct Ends {
  ~Ends() {
    close(to);
    if (from >= 0) close(from);
  }
  int from = -1, to = -1;
};

// The number of a line that Lines() wrote; -1 of another.
int NumberOf(const std::string& line) {
  int number = -1;
  if (line.size() < 100 || !absl::SimpleAtoi(line.substr(0, line.find(' ')), &number)) return -1;
  return number;
}

// So many lines, whether somebody takes them or not; false if that has not ended after a minute,
// and then the log is still written to.
bool Writes(const std::shared_ptr<spdlog::logger>& log, int first, int count) {
  std::packaged_task<void()> write([log, first, count] {
    for (int i = first; i < first + count; ++i) {
      log->info("{}", absl::StrCat(i, " ", std::string(100, 'x')));
    }
  });
  const std::future<void> done = write.get_future();
  std::thread(std::move(write)).detach();
  return done.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
}

// So many lines, or as many as come before there is none for so long.
std::string ReadLines(int from, int64_t lines, std::chrono::milliseconds silence) {
  std::string text;
  pollfd there = {.fd = from, .events = POLLIN, .revents = 0};
  for (char buffer[1 << 16]; std::ranges::count(text, '\n') < lines &&
                             poll(&there, 1, static_cast<int>(silence.count())) == 1;) {
    const ssize_t bytes = read(from, buffer, sizeof(buffer));
    if (bytes <= 0) break;
    text.append(buffer, static_cast<size_t>(bytes));
  }
  return text;
}

class LogSinkTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    int both[2];
    ASSERT_EQ(GetParam() ? socketpair(AF_UNIX, SOCK_STREAM, 0, both) : pipe(both), 0);
    ends_.from = both[0];
    ends_.to = both[1];
    Open(std::chrono::milliseconds(100));
  }

  void Open(std::chrono::milliseconds patience) {
    log_ = std::make_shared<spdlog::logger>("log", std::make_shared<LogSink>(ends_.to, patience));
    log_->set_pattern("%v");
  }

  Ends ends_;
  std::shared_ptr<spdlog::logger> log_;
};

TEST_P(LogSinkTest, NobodyWaitsForWhoReadsNothing) {
  ASSERT_TRUE(Writes(log_, 0, kLines));
  std::string text = ReadLines(ends_.from, kLines, std::chrono::milliseconds(200));
  ASSERT_TRUE(Writes(log_, kLines, 2));
  text += ReadLines(ends_.from, kLines, std::chrono::milliseconds(200));
  EXPECT_THAT(text, ::testing::StartsWith("0 x"));
  EXPECT_THAT(text, ::testing::HasSubstr(absl::StrCat("\n", kLines + 1, " x")))
      << "they come again";
}

TEST_P(LogSinkTest, NothingIsLostWhileSomebodyReads) {
  Open(std::chrono::seconds(20));  // a busy machine may keep the reader from reading for a while
  auto text = std::async(std::launch::async,
                         [&] { return ReadLines(ends_.from, kLines, std::chrono::seconds(20)); });
  ASSERT_TRUE(Writes(log_, 0, kLines));
  const std::vector<std::string> lines = absl::StrSplit(text.get(), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), static_cast<size_t>(kLines));
  for (int i = 0; i < kLines; ++i) EXPECT_EQ(NumberOf(lines[i]), i);
}

INSTANTIATE_TEST_SUITE_P(Ends, LogSinkTest, ::testing::Bool(),
                         [](const auto& is_socket) { return is_socket.param ? "Socket" : "Pipe"; });

TEST(LogSinkOfAFile, WritesBehindWhatIsThere) {
  const testing::TestFolder folder;
  const std::string path = folder / "log";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(write(file, "first\n", 6), 6);
  spdlog::logger log("log", std::make_shared<LogSink>(file));
  log.set_pattern("%v");
  log.info("second");
  close(file);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "first\nsecond\n");
}

}  // namespace
}  // namespace hilbert_ring::server
