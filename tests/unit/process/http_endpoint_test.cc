#include "server/process/http_endpoint.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/captured_log.h"
#include "tests/support/certificates.h"
#include "tests/support/http_get.h"
#include "tests/support/silent_connection.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::server {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
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

std::map<std::string, HttpEndpoint::Handler> Livez() {
  return {{"/livez", [](std::string_view) { return HttpReply{.body = "ok\n"}; }}};
}

TEST(HttpEndpoint, AnswersItsPathsAlone) {
  auto handlers = Livez();
  handlers["/readyz"] = [](std::string_view) {
    return HttpReply{.status = 503, .body = "starting\n"};
  };
  auto http = HttpEndpoint::Start("127.0.0.1", 0, handlers);
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
}

int RaiseDescriptorLimit() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 0;
  rlimit most = files;
  most.rlim_cur = most.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &most) == 0) files = most;
  constexpr rlim_t kGreatest = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(files.rlim_cur, kGreatest));
}

TEST(HttpEndpoint, AnswersAtOnceBehindAThousandConnectionsThatDoNot) {
  // Both ends of each connection are in this process.
  const int connections = std::min(1000, (RaiseDescriptorLimit() - 96) / 2);
  ASSERT_GE(connections, 50);
  for (const char* request : {"", "GET /livez HTTP/1.1\r\nHost:"}) {
    auto http = HttpEndpoint::Start("127.0.0.1", 0, Livez());
    ASSERT_TRUE(http.ok()) << http.status();
    std::vector<int> idle;
    for (int i = 0; i < connections; ++i) {
      idle.push_back(SilentSocket());
      ConnectSilently(idle.back(), (*http)->port());
      (void)send(idle.back(), request, std::strlen(request), MSG_NOSIGNAL);
    }
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(Get((*http)->port(), "/livez"), StartsWith("HTTP/1.1 200 "));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1000));
    for (const int client : idle) close(client);
  }
}

TEST(HttpEndpoint, AcceptsAgainAfterDescriptorsRanOut) {
  auto http = HttpEndpoint::Start("127.0.0.1", 0, Livez());
  ASSERT_TRUE(http.ok()) << http.status();
  ASSERT_TRUE(TakeAllDescriptors((*http)->port()));
  EXPECT_THAT(Get((*http)->port(), "/livez"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpEndpoint, ShowsANewCertificateOnceItIsWhole) {
  const std::string folder = ::testing::TempDir() + "/http_" + std::to_string(getpid()) + "_";
  const testing::CertificateAuthority authority, next;
  authority.WriteTo(folder + "ca.crt");
  next.WriteTo(folder + "next.crt");
  authority.Issue({}, folder + "tls.crt", folder + "tls.key");
  std::mutex mutex;
  std::vector<std::string> shown;
  const testing::CapturedLog log;
  auto http = HttpEndpoint::Start(
      "127.0.0.1", 0, Livez(),
      {.cert = folder + "tls.crt", .key = folder + "tls.key", .shown = [&](const std::string& pem) {
         const std::lock_guard lock(mutex);
         shown.push_back(pem);
       }});
  ASSERT_TRUE(http.ok()) << http.status();
  const auto served = [&](const std::string& ca) {
    const auto answer = testing::HttpGet({.port = (*http)->port(), .path = "/livez", .ca = ca});
    return answer.ok() && answer->status == 200;
  };
  // A busy machine may take longer over a handshake than the port waits for it.
  const auto served_in_time = [&](const std::string& ca) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!served(ca) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return std::chrono::steady_clock::now() < end;
  };
  EXPECT_TRUE(served_in_time(folder + "ca.crt"));
  // The key belongs to another certificate: the old one is shown until both fit.
  next.Issue({}, folder + "new.crt", folder + "tls.key");
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  constexpr char kKept[] = "HTTP keeps its certificate: --tls-key";
  while (log.Count(kKept) == 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(served_in_time(folder + "ca.crt"));
  std::filesystem::rename(folder + "new.crt", folder + "tls.crt");
  EXPECT_TRUE(served_in_time(folder + "next.crt"));
  http->reset();
  EXPECT_EQ(shown.size(), 2U);
  EXPECT_EQ(log.Count(kKept), 1) << log.text();
}

TEST(HttpEndpoint, ANewCertificateCutsNoConnection) {
  const std::string folder = ::testing::TempDir() + "/http_" + std::to_string(getpid()) + "_";
  const testing::CertificateAuthority authority;
  authority.WriteTo(folder + "ca.crt");
  authority.Issue({}, folder + "tls.crt", folder + "tls.key");
  std::atomic<int> shown = 0;
  auto http = HttpEndpoint::Start("127.0.0.1", 0, Livez(),
                                  {.cert = folder + "tls.crt",
                                   .key = folder + "tls.key",
                                   .shown = [&](const std::string&) { ++shown; }});
  ASSERT_TRUE(http.ok()) << http.status();
  std::atomic<bool> over = false;
  std::atomic<int> answers = 0;
  std::vector<std::jthread> callers(4);
  for (std::jthread& caller : callers) {
    caller = std::jthread([&] {
      while (!over) {
        const auto answer =
            testing::HttpGet({.port = (*http)->port(), .path = "/livez", .ca = folder + "ca.crt"});
        EXPECT_TRUE(answer.ok()) << answer.status();
        ++answers;
      }
    });
  }
  const int renewals = AtDepth(1, 1, 4);  // a second each
  for (int renewal = 2; renewal <= 1 + renewals; ++renewal) {
    authority.Issue({}, folder + "tls.crt", folder + "tls.key");
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (shown < renewal && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(shown, renewal);
    const int before = answers;
    while (answers < before + 20) std::this_thread::yield();
  }
  over = true;
}

TEST(HttpEndpoint, RefusesOtherMethodsAndProtocols) {
  auto http = HttpEndpoint::Start("127.0.0.1", 0, Livez());
  ASSERT_TRUE(http.ok()) << http.status();
  const int port = (*http)->port();
  EXPECT_THAT(Ask(port, "POST /livez HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_EQ(Ask(port, "hello\r\n\r\n"), "") << "only HTTP gets an answer";
  EXPECT_THAT(
      Ask(port, "HEAD /livez HTTP/1.1\r\n\r\n"),
      AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("Content-Length: 3"), EndsWith("\r\n\r\n")));
}

// A browser sends the cookies of all ports of a host. The steps find a head that leaves no room for
// the answer's head.
TEST(HttpEndpoint, HeadsOf16KiBAreTakenAndLargerOnesAreAnswered) {
  auto http = HttpEndpoint::Start("127.0.0.1", 0, Livez());
  ASSERT_TRUE(http.ok()) << http.status();
  const int port = (*http)->port();
  const std::string begin = "GET /livez HTTP/1.1\r\nHost: localhost\r\n";
  std::string cookies = "Cookie: a=" + std::string(98, 'x');
  for (int i = 0; i < 150; ++i) cookies += "; a=" + std::string(98, 'x');
  EXPECT_THAT(Ask(port, begin + cookies + "\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  const size_t most = (16 << 10) - begin.size() - std::string("X: \r\n\r\n").size();
  for (const size_t bytes : {most, most + 1}) {
    EXPECT_THAT(Ask(port, begin + "X: " + std::string(bytes, 'x') + "\r\n\r\n"),
                StartsWith(bytes == most ? "HTTP/1.1 200 " : "HTTP/1.1 431 "))
        << bytes;
  }
  std::string small = begin;
  for (int i = 0; i < 1000; ++i) {
    small += "a:\r\n";
    const std::string answer = Ask(port, small + "\r\n");
    EXPECT_THAT(answer, AnyOf(StartsWith("HTTP/1.1 200 "), StartsWith("HTTP/1.1 431 "))) << i;
  }
}

TEST(HttpEndpoint, ALoopbackAddressIsNotServedByOtherNames) {
  auto http = HttpEndpoint::Start("127.0.0.1", 0, Livez());
  auto network = HttpEndpoint::Start("0.0.0.0", 0, Livez());
  ASSERT_TRUE(http.ok() && network.ok()) << http.status() << network.status();
  for (const char* host :
       {"localhost", "LOCALHOST:8002", "127.0.0.1", "127.8.9.1:80", "[::1]", "[::1]:8002"}) {
    EXPECT_THAT(
        Ask((*http)->port(), absl::StrCat("GET /livez HTTP/1.1\r\nHost: ", host, "\r\n\r\n")),
        StartsWith("HTTP/1.1 200 "))
        << host;
  }
  EXPECT_THAT(Ask((*http)->port(), "GET /livez HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  for (const char* host : {"page.example", "page.example:8002", "127.0.0.1.page.example",
                           "localhost.page.example", "localhost:80@page", "192.0.2.1", "0.0.0.0"}) {
    const std::string request = absl::StrCat("GET /livez HTTP/1.1\r\nHost: ", host, "\r\n\r\n");
    EXPECT_THAT(Ask((*http)->port(), request),
                AllOf(StartsWith("HTTP/1.1 421 "),
                      HasSubstr(absl::StrCat("Host is ", host, ", must be localhost"))));
    EXPECT_THAT(Ask((*network)->port(), request), StartsWith("HTTP/1.1 200 ")) << host;
  }
}

TEST(HttpEndpoint, TargetsMayHaveAScheme) {
  auto http = HttpEndpoint::Start("127.0.0.1", 0, Livez());
  ASSERT_TRUE(http.ok()) << http.status();
  const auto status = [&](const std::string& target, const std::string& host) {
    return Ask((*http)->port(),
               absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: ", host, "\r\n\r\n"))
        .substr(9, 3);
  };
  EXPECT_EQ(status("http://localhost/livez", "page.example"), "200");
  EXPECT_EQ(status("HTTP://127.0.0.1:8002/livez?x=1", "localhost"), "200");
  EXPECT_EQ(status("http://page.example/livez", "localhost"), "421");
  EXPECT_EQ(status("http://localhost", "localhost"), "404") << "no page is served at /";
  EXPECT_EQ(status("ftp://localhost/livez", "localhost"), "404");
}

TEST(HttpEndpoint, LongAnswersArriveWhole) {
  const std::string body(20 << 20, 'x');
  auto http = HttpEndpoint::Start(
      "127.0.0.1", 0, {{"/metrics", [&](std::string_view) { return HttpReply{.body = body}; }}});
  ASSERT_TRUE(http.ok()) << http.status();
  EXPECT_THAT(Get((*http)->port(), "/metrics"), EndsWith("\r\n\r\n" + body));
}

}  // namespace
}  // namespace hilbert_ring::server
