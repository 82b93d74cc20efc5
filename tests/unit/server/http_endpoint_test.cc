#include "server/process/http_endpoint.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

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
      {{"/livez", [] { return HttpReply{.body = "ok\n"}; }},
       {"/readyz", [] { return HttpReply{.status = 503, .body = "starting\n"}; }}});
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

}  // namespace
}  // namespace hilbert_ring::server
