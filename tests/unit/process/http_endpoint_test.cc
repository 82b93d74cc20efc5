#include "server/process/http_endpoint.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/descriptors.h"

namespace hilbert_ring::server {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Ask(int port, const std::string& request) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 &&
      write(fd, request.data(), request.size()) > 0) {
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) answer.append(buffer, n);
  }
  close(fd);
  return answer;
}

std::string Get(int port, const std::string& path) {
  return Ask(port, "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

TEST(HttpEndpoint, AnswersItsPathsAlone) {
  auto http = HttpEndpoint::Start(
      "127.0.0.1", 0,
      {{"/livez", [](std::string_view) { return HttpReply{.body = "ok\n"}; }},
       {"/readyz",
        [](std::string_view) { return HttpReply{.status = 503, .body = "starting\n"}; }}});
  ASSERT_TRUE(http.ok()) << http.status();
  const int port = (*http)->port();
  ASSERT_GT(port, 0);
  EXPECT_THAT(Get(port, "/livez"), AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("\r\n\r\nok\n"),
                                         HasSubstr("text/plain")));
  EXPECT_THAT(Get(port, "/livez?x=1"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Get(port, "/readyz"), StartsWith("HTTP/1.1 503 "));
  for (const char* path : {"/", "/livez/more", "/metrics", "/../etc/passwd"}) {
    EXPECT_THAT(Get(port, path), StartsWith("HTTP/1.1 404 ")) << path;
  }
  // The port is this server's alone.
  EXPECT_TRUE(absl::IsUnavailable(HttpEndpoint::Start("127.0.0.1", port, {}).status()));
  const auto start = std::chrono::steady_clock::now();
  http->reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1000));
}

// A connection that sends `request` and waits.
class IdleConnection {
 public:
  IdleConnection(int port, const std::string& request) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // A port that takes no more connections does not hold the test up.
    (void)connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
    if (!request.empty()) (void)send(fd_, request.data(), request.size(), MSG_NOSIGNAL);
  }
  IdleConnection(IdleConnection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~IdleConnection() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  int fd_;
};

TEST(HttpEndpoint, AnswersAtOnceBehindAThousandConnectionsThatDoNot) {
  // Both ends of each are here.
  const int connections = std::min(1000, (RaiseDescriptorLimit() - 96) / 2);
  ASSERT_GE(connections, 50);
  for (const char* request : {"", "GET /livez HTTP/1.1\r\nHost:"}) {
    auto http = HttpEndpoint::Start(
        "127.0.0.1", 0, {{"/livez", [](std::string_view) { return HttpReply{.body = "ok\n"}; }}});
    ASSERT_TRUE(http.ok()) << http.status();
    std::vector<IdleConnection> idle;
    idle.reserve(connections);
    for (int i = 0; i < connections; ++i) idle.emplace_back((*http)->port(), request);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(Get((*http)->port(), "/livez"), StartsWith("HTTP/1.1 200 "));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1000));
  }
}

TEST(HttpEndpoint, AnswersThatNobodyReadsAreBounded) {
  const std::string body(9 << 20, 'x');
  auto http = HttpEndpoint::Start(
      "127.0.0.1", 0,
      {{"/livez", [](std::string_view) { return HttpReply{.body = "ok\n"}; }},
       {"/metrics", [&](std::string_view) { return HttpReply{.body = body}; }}});
  ASSERT_TRUE(http.ok()) << http.status();
  const int port = (*http)->port();
  const auto until_it_says = [&](const std::string& status) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (std::chrono::steady_clock::now() < limit) {
      if (Get(port, "/metrics").starts_with("HTTP/1.1 " + status)) return true;
    }
    return false;
  };
  {
    const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
    const IdleConnection unread[] = {{port, request}, {port, request}};
    EXPECT_TRUE(until_it_says("503"));
    EXPECT_THAT(Get(port, "/livez"), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_TRUE(until_it_says("200"));
}

TEST(HttpEndpoint, RefusesWhatItDoesNotTake) {
  auto http = HttpEndpoint::Start(
      "127.0.0.1", 0, {{"/livez", [](std::string_view) { return HttpReply{.body = "ok\n"}; }}});
  ASSERT_TRUE(http.ok()) << http.status();
  const int port = (*http)->port();
  EXPECT_THAT(Ask(port, "POST /livez HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_EQ(Ask(port, "hello\r\n\r\n"), "") << "what is no HTTP gets no answer";
  EXPECT_THAT(Ask(port, "GET /livez HTTP/1.1\r\nX: " + std::string(9000, 'x')),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(
      Ask(port, "HEAD /livez HTTP/1.1\r\n\r\n"),
      AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("Content-Length: 3"), EndsWith("\r\n\r\n")));
}

TEST(HttpEndpoint, LongAnswersArriveWhole) {
  const std::string body(20 << 20, 'x');
  auto http = HttpEndpoint::Start(
      "127.0.0.1", 0, {{"/metrics", [&](std::string_view) { return HttpReply{.body = body}; }}});
  ASSERT_TRUE(http.ok()) << http.status();
  EXPECT_THAT(Get((*http)->port(), "/metrics"), EndsWith("\r\n\r\n" + body));
}

TEST(HttpEndpoint, APortInUseIsSaidToBe) {
  const auto first = HttpEndpoint::Start("127.0.0.1", 0, {});
  ASSERT_TRUE(first.ok()) << first.status();
  const auto again = HttpEndpoint::Start("127.0.0.1", (*first)->port(), {});
  EXPECT_THAT(std::string(again.status().message()),
              HasSubstr("http 127.0.0.1:" + std::to_string((*first)->port()) +
                        ": another process listens"));
}

}  // namespace
}  // namespace hilbert_ring::server
