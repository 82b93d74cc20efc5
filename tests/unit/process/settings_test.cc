#include "server/process/settings.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/process/host_port.h"
#include "tests/support/test_folder.h"
#include "tests/unit/process/parsed_settings.h"

namespace hilbert_ring::server {
namespace {

TEST_F(Settings, AnOldReadyFileIsRemoved) {
  const testing::TestFolder folder;
  const std::string path = folder / "ready", config = folder / "config";
  std::ofstream(config) << "max-queue=3\n";
  const auto with = [&path](const std::string& more) {
    return std::vector<std::string>{"--ready-file=" + path, more};
  };
  Parsed(with("--max-queue=3"));
  std::ofstream(path) << "{\"pid\": 1}\n";
  Parsed(with("--max-queue=3"));
  EXPECT_FALSE(std::filesystem::exists(path)) << "each start removes it, even if it fails later";
  for (const char* wrong : {"--max-queue=x", "--no-such-flag", "--grpc-host=10.0.0.1"}) {
    std::ofstream(path) << "{\"pid\": 1}\n";
    RefusalOf(with(wrong));
    EXPECT_FALSE(std::filesystem::exists(path)) << wrong;
  }
  EXPECT_NE(RefusalOf({"--config=" + config, "--ready-file=" + config}).find("is no ready file"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(config));
  for (const char* wrong : {"bogus=1", "max-queue=x"}) {
    std::ofstream(path) << "{\"pid\": 1}\n";
    std::ofstream(config) << wrong << "\nready-file=" << path << "\n";
    RefusalOf({"--config=" + config});
    EXPECT_FALSE(std::filesystem::exists(path)) << wrong;
  }
  Set("HILBERT_RING_READY_FILE", "/dev/null");
  EXPECT_NE(RefusalOf({}).find("--ready-file (HILBERT_RING_READY_FILE) /dev/null is no regular"),
            std::string::npos);
}

TEST_F(Settings, FlagThenEnvironmentThenFileThenDefault) {
  const std::string path = ::testing::TempDir() + "settings_test_" + std::to_string(getpid());
  std::ofstream(path) << "grpc-port=1001\nhttp-port=1002\nmax-queue=3\nmemory-limit=2GiB\n";
  Set("HILBERT_RING_GRPC_PORT", "2001");
  Set("HILBERT_RING_MAX_QUEUE", "5");
  const CoordinatorSettings settings = Parsed({"--config=" + path, "--max-queue", "7"});
  EXPECT_EQ(settings.max_queue, 7);
  EXPECT_EQ(settings.grpc_port, 2001);
  EXPECT_EQ(settings.http_port, 1002);
  EXPECT_EQ(settings.memory_limit_bytes, int64_t{2} << 30);
  EXPECT_EQ(settings.spawn_workers, 1);
  Set("HILBERT_RING_CONFIG", path);
  EXPECT_EQ(Parsed({}).http_port, 1002);
}

struct Hosts {
  std::string grpc, http, membership;
  bool operator==(const Hosts&) const = default;
};

Hosts HostsOf(std::vector<std::string> arguments) {
  const CoordinatorSettings settings = Parsed(std::move(arguments));
  return {settings.grpc_host, settings.http_host, settings.membership_host};
}

TEST_F(Settings, WithoutTlsAndCallersNamesPortsAreOnTheLoopbackAddress) {
  const std::string all = "0.0.0.0", local = "127.0.0.1";
  const std::vector<std::string> tls = {"--tls-cert=c", "--tls-key=k"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), tls.begin(), tls.end());
    return more;
  };
  EXPECT_EQ(HostsOf({}), (Hosts{local, local, local}));
  EXPECT_EQ(HostsOf({"--spawn-workers=0"}), (Hosts{local, local, local}));
  EXPECT_EQ(HostsOf({"--auth-token-file=t"}), (Hosts{local, local, local}));
  EXPECT_EQ(HostsOf(tls), (Hosts{local, local, local}));
  EXPECT_EQ(HostsOf(with({"--auth-token-file=t"})), (Hosts{all, all, local}));
  EXPECT_EQ(HostsOf(with({"--tls-client-ca=a"})), (Hosts{all, all, local}));
  EXPECT_EQ(HostsOf(with({"--tls-ca=a", "--spawn-workers=0"})), (Hosts{local, local, all}));
  EXPECT_EQ(HostsOf(with({"--tls-ca=a", "--auth-token-file=t", "--spawn-workers=0",
                          "--grpc-host=10.1.2.3"})),
            (Hosts{"10.1.2.3", all, "10.1.2.3"}));
  EXPECT_EQ(HostsOf({"--insecure"}), (Hosts{all, all, local}));
  EXPECT_EQ(HostsOf({"--insecure", "--spawn-workers=0"}), (Hosts{all, all, all}));
  EXPECT_EQ(HostsOf({"--grpc-host=localhost", "--http-host=127.1.2.3", "--membership-host=::1"}),
            (Hosts{"localhost", "127.1.2.3", "::1"}));
  EXPECT_EQ(HostsOf({"--grpc-host=[::1]", "--http-host=[::1]", "--membership-host=[::1]"}),
            (Hosts{"::1", "::1", "::1"}));
}

TEST_F(Settings, ANetworkWithoutTlsNeedsInsecure) {
  for (const char* host : {"--grpc-host", "--http-host", "--membership-host"}) {
    for (const char* network : {"0.0.0.0", "10.1.2.3", "::", "127.example.com", "example.com"}) {
      const std::string argument = std::string(host) + "=" + network;
      const auto [code, message] = Refused({argument});
      EXPECT_EQ(code, 2) << argument;
      EXPECT_NE(message.find(std::string(host) + " is " + network), std::string::npos) << message;
      EXPECT_NE(message.find("--insecure"), std::string::npos) << message;
      const CoordinatorSettings open = Parsed({argument, "--insecure"});
      EXPECT_TRUE(std::any_of(open.warnings.begin(), open.warnings.end(), [&](const auto& warning) {
        return warning.starts_with("--insecure: every host that reaches " + HostPort(network, 80));
      })) << argument;
      std::vector<std::string> warnings = open.warnings;
      std::sort(warnings.begin(), warnings.end());
      EXPECT_EQ(std::adjacent_find(warnings.begin(), warnings.end()), warnings.end()) << argument;
    }
  }
  // TLS alone does not identify callers, and HTTP shows all jobs.
  for (const char* host : {"--grpc-host=10.1.2.3", "--http-host=10.1.2.3"}) {
    EXPECT_EQ(Refused({"--tls-cert=c", "--tls-key=k", host}).first, 2) << host;
  }
  const std::vector<std::string> secure = {"--tls-cert=c", "--tls-key=k", "--auth-token-file=t",
                                           "--grpc-host=0.0.0.0"};
  for (const std::string& warning : Parsed(secure).warnings) {
    EXPECT_FALSE(warning.starts_with("--insecure")) << warning;
  }
}

TEST_F(Settings, TlsFilesThatDoNotGoTogetherAreRefused) {
  EXPECT_EQ(Refused({"--tls-cert=c"}).first, 2);
  EXPECT_EQ(Refused({"--tls-key=k"}).first, 2);
  EXPECT_EQ(Refused({"--tls-ca=a"}).first, 2);
  EXPECT_EQ(Refused({"--tls-client-ca=a"}).first, 2);
  EXPECT_EQ(Refused({"--tls-peer-name=n"}).first, 2);
  EXPECT_EQ(Refused({"--tls-cert=c", "--tls-key=k", "--tls-ca=a"}).first, 2) << "spawned workers";
  EXPECT_EQ(Refused({"--tls-cert=c", "--tls-key=k", "--tls-ca=a", "--spawn-workers=0",
                     "--tls-peer-name=n", "--tls-client-ca=b"})
                .first,
            0);
}

TEST(WorkerHost, IsOnTheLoopbackAddressWithoutTls) {
  const auto parse = [](std::vector<std::string> arguments) {
    return std::holds_alternative<WorkerSettings>(ParseWorker(std::move(arguments)));
  };
  EXPECT_TRUE(parse({}));
  EXPECT_TRUE(parse({"--host=[::1]", "--http-host=[::1]"}));
  EXPECT_FALSE(parse({"--host=10.1.2.3"}));
  EXPECT_TRUE(parse({"--host=10.1.2.3", "--insecure"}));
  EXPECT_TRUE(parse({"--host=10.1.2.3", "--tls-cert=c", "--tls-key=k", "--tls-ca=a"}));
  EXPECT_FALSE(parse({"--host=10.1.2.3", "--tls-cert=c", "--tls-key=k"}));
  EXPECT_FALSE(parse({"--http-host=0.0.0.0"}));
  EXPECT_TRUE(parse({"--http-host=0.0.0.0", "--insecure"}));
  EXPECT_TRUE(parse({"--http-host=0.0.0.0", "--tls-cert=c", "--tls-key=k", "--tls-ca=a"}));
}

TEST(WorkerHttp, HasACertificateAndTokensOfItsOwn) {
  const auto parse = [](std::vector<std::string> arguments) {
    return ParseWith(ParseWorkerSettings, std::move(arguments));
  };
  const auto none = std::get<WorkerSettings>(parse({}).first).http;
  EXPECT_EQ(none.auth_token_file, "");
  const auto http =
      std::get<WorkerSettings>(
          parse({"--http-tls-cert=c", "--http-tls-key=k", "--auth-token-file=t"}).first)
          .http;
  EXPECT_EQ(std::tie(http.cert, http.key, http.auth_token_file), std::make_tuple("c", "k", "t"));
  for (const char* half : {"--http-tls-cert=c", "--http-tls-key=k"}) {
    const auto [parsed, message] = parse({half});
    EXPECT_TRUE(std::holds_alternative<int>(parsed)) << half;
    EXPECT_NE(message.find("--http-tls-cert and --http-tls-key go together"), std::string::npos)
        << message;
  }
}

TEST(GpuOrdinal, IsOfGpusAlone) {
  EXPECT_EQ(GpuOrdinal("auto:2"), 2);
  EXPECT_EQ(GpuOrdinal("cuda:0"), 0);
  EXPECT_EQ(GpuOrdinal("cuda:12"), 12);
  for (const char* other : {"auto", "cpu", "cuda", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", ""}) {
    EXPECT_EQ(GpuOrdinal(other), std::nullopt) << other;
  }
}

TEST_F(Settings, AnUnknownFlagIsNamedWithTheNearest) {
  const std::string message = RefusalOf({"--grpc-prot=1001"});
  EXPECT_NE(message.find("--grpc-prot"), std::string::npos) << message;
  EXPECT_NE(message.find("; the nearest known one is --grpc-port"), std::string::npos) << message;
}

}  // namespace
}  // namespace hilbert_ring::server
