#include "server/process/settings.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/process/host_port.h"

namespace hilbert_ring::server {
namespace {

std::variant<CoordinatorSettings, int> Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "hilbert-ring-coordinator");
  std::vector<char*> argv;
  argv.reserve(arguments.size());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ParseCoordinatorSettings(static_cast<int>(argv.size()), argv.data());
}

CoordinatorSettings Parsed(std::vector<std::string> arguments) {
  const auto parsed = Parse(std::move(arguments));
  EXPECT_TRUE(std::holds_alternative<CoordinatorSettings>(parsed));
  const auto* settings = std::get_if<CoordinatorSettings>(&parsed);
  return settings != nullptr ? *settings : CoordinatorSettings();
}

class Settings : public ::testing::Test {
 protected:
  void TearDown() override {
    unsetenv("HILBERT_RING_GRPC_PORT");
    unsetenv("HILBERT_RING_MAX_QUEUE");
    unsetenv("HILBERT_RING_CONFIG");
    unsetenv("HILBERT_RING_GRPC_PROT");
    unsetenv("HILBERT_RING_MEMORY_SHARE");
    unsetenv("HILBERT_RING_SERVER");
    unsetenv("HILBERT_RING_TOKEN");
  }
};

TEST_F(Settings, Defaults) {
  const CoordinatorSettings settings = Parsed({});
  EXPECT_EQ(settings.grpc_port, 8001);
  EXPECT_EQ(settings.http_port, 8002);
  EXPECT_EQ(settings.membership_port, 8003);
  EXPECT_EQ(settings.join_token_file, "");
  EXPECT_EQ(settings.spawn_workers, 1);
  EXPECT_EQ(settings.idle_timeout, std::chrono::minutes(5));
}

// The ready file is removed when the process starts, and written when it is ready.
TEST_F(Settings, AReadyFileIsNoneOfTheFilesThatAreRead) {
  const std::string folder = ::testing::TempDir();
  const std::string config = folder + "/settings_clash.ini", token = folder + "/settings_clash";
  const std::string link = folder + "/settings_clash.link", ready = folder + "/settings.ready";
  std::ofstream(config) << "max-queue=3\n";
  std::ofstream(token) << "0123456789abcdef0123456789abcdef\n";
  std::ofstream(ready) << "{}\n";
  std::filesystem::remove(link);
  std::filesystem::create_symlink(token, link);
  const auto code = [](std::vector<std::string> arguments) {
    ::testing::internal::CaptureStderr();
    const auto parsed = Parse(std::move(arguments));
    const std::string said = ::testing::internal::GetCapturedStderr();
    const int* code = std::get_if<int>(&parsed);
    return std::pair(code == nullptr ? 0 : *code, said);
  };
  const auto same_config =
      code({"--config=" + config, "--ready-file=" + folder + "/./settings_clash.ini"});
  EXPECT_EQ(same_config.first, 2);
  EXPECT_NE(same_config.second.find("is the same file as --config " + config), std::string::npos)
      << same_config.second;
  setenv("HILBERT_RING_CONFIG", config.c_str(), 1);
  EXPECT_EQ(code({"--ready-file=" + config}).first, 2);
  unsetenv("HILBERT_RING_CONFIG");
  const auto same_token = code({"--join-token-file=" + token, "--ready-file=" + link});
  EXPECT_EQ(same_token.first, 2);
  EXPECT_NE(same_token.second.find("--join-token-file"), std::string::npos) << same_token.second;
  EXPECT_EQ(
      code({"--config=" + config, "--join-token-file=" + token, "--ready-file=" + ready}).first, 0);
  EXPECT_EQ(code({"--config=" + config, "--ready-file=" + folder + "/not-there-yet"}).first, 0);
}

TEST_F(Settings, FlagThenEnvironmentThenFileThenDefault) {
  const std::string path = ::testing::TempDir() + "settings_test_" + std::to_string(getpid());
  std::ofstream(path) << "grpc-port=1001\nhttp-port=1002\nmax-queue=3\nmemory-limit=2GiB\n";
  setenv("HILBERT_RING_GRPC_PORT", "2001", 1);
  setenv("HILBERT_RING_MAX_QUEUE", "5", 1);
  const CoordinatorSettings settings = Parsed({"--config=" + path, "--max-queue", "7"});
  EXPECT_EQ(settings.max_queue, 7);
  EXPECT_EQ(settings.grpc_port, 2001);
  EXPECT_EQ(settings.http_port, 1002);
  EXPECT_EQ(settings.memory_limit_bytes, int64_t{2} << 30);
  EXPECT_EQ(settings.spawn_workers, 1);
  setenv("HILBERT_RING_CONFIG", path.c_str(), 1);
  EXPECT_EQ(Parsed({}).http_port, 1002);
}

TEST_F(Settings, CpuInstructionsOfBothProcesses) {
  EXPECT_EQ(Parsed({}).cpu_instructions, "");
  for (const char* name : {"avx2", "amx-bf16", "amx-bf16-emulated"}) {
    EXPECT_EQ(Parsed({absl::StrCat("--cpu-instructions=", name)}).cpu_instructions, name);
  }
  std::string name = "hilbert-ring-worker", flag = "--cpu-instructions=sse4";
  char* argv[] = {name.data(), flag.data()};
  EXPECT_EQ(std::get<WorkerSettings>(ParseWorkerSettings(1, argv)).cpu_instructions, "");
  EXPECT_EQ(std::get<WorkerSettings>(ParseWorkerSettings(2, argv)).cpu_instructions, "sse4");
}

TEST_F(Settings, OverlapOfBothProcesses) {
  EXPECT_TRUE(Parsed({}).overlap_exchange);
  EXPECT_FALSE(Parsed({"--overlap-exchange=false"}).overlap_exchange);
  std::string name = "hilbert-ring-worker", flag = "--overlap-exchange=false";
  char* argv[] = {name.data(), flag.data()};
  EXPECT_TRUE(std::get<WorkerSettings>(ParseWorkerSettings(1, argv)).overlap_exchange);
  EXPECT_FALSE(std::get<WorkerSettings>(ParseWorkerSettings(2, argv)).overlap_exchange);
}

TEST_F(Settings, DeviceOfBothProcesses) {
  EXPECT_EQ(Parsed({}).device.device, "auto");
  const DeviceSettings device = Parsed({"--device=cuda:3", "--gpu-memory-fraction=0.5",
                                        "--attention-kernel=native", "--gpu-exchange-blocks=8"})
                                    .device;
  EXPECT_EQ(device.device, "cuda:3");
  EXPECT_EQ(device.gpu_memory_fraction, 0.5);
  EXPECT_EQ(device.attention_kernel, "native");
  EXPECT_EQ(device.gpu_exchange_blocks, 8);
  std::string name = "hilbert-ring-worker", flag = "--device=cpu", share = "--memory-share=0.25";
  char* argv[] = {name.data(), flag.data(), share.data()};
  const auto worker = std::get<WorkerSettings>(ParseWorkerSettings(3, argv));
  EXPECT_EQ(worker.device.device, "cpu");
  EXPECT_EQ(worker.device.gpu_memory_fraction, 0.9);
  EXPECT_EQ(worker.memory_share, 0.25);
}

// Exit code and words; 0 for settings that are taken.
std::pair<int, std::string> Refused(std::vector<std::string> arguments) {
  ::testing::internal::CaptureStderr();
  const auto parsed = Parse(std::move(arguments));
  const std::string said = ::testing::internal::GetCapturedStderr();
  const int* code = std::get_if<int>(&parsed);
  return {code == nullptr ? 0 : *code, said};
}

struct Hosts {
  std::string grpc, http, membership;
  bool operator==(const Hosts&) const = default;
};

Hosts HostsOf(std::vector<std::string> arguments) {
  const CoordinatorSettings settings = Parsed(std::move(arguments));
  return {settings.grpc_host, settings.http_host, settings.membership_host};
}

TEST_F(Settings, WithoutTlsAndAWayToTellCallersApartPortsAreOnTheLoopbackAddress) {
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
}

TEST_F(Settings, ANetworkIsServedWithoutTlsByInsecureAlone) {
  for (const char* host : {"--grpc-host", "--http-host", "--membership-host"}) {
    for (const char* network : {"0.0.0.0", "10.1.2.3", "::", "127.example.com", "example.com"}) {
      const std::string argument = std::string(host) + "=" + network;
      const auto [code, said] = Refused({argument});
      EXPECT_EQ(code, 2) << argument;
      EXPECT_NE(said.find(std::string(host) + " " + network), std::string::npos) << said;
      EXPECT_NE(said.find("--insecure"), std::string::npos) << said;
      const CoordinatorSettings open = Parsed({argument, "--insecure"});
      EXPECT_TRUE(std::any_of(open.warnings.begin(), open.warnings.end(), [&](const auto& warning) {
        return warning.starts_with("--insecure: whoever reaches " + HostPort(network, 80));
      })) << argument;
      std::vector<std::string> warnings = open.warnings;
      std::sort(warnings.begin(), warnings.end());
      EXPECT_EQ(std::adjacent_find(warnings.begin(), warnings.end()), warnings.end()) << argument;
    }
  }
  // TLS alone tells nobody apart, and HTTP shows all jobs.
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
    arguments.insert(arguments.begin(), "hilbert-ring-worker");
    std::vector<char*> argv;
    argv.reserve(arguments.size());
    for (std::string& argument : arguments) argv.push_back(argument.data());
    ::testing::internal::CaptureStderr();
    const auto parsed = ParseWorkerSettings(static_cast<int>(argv.size()), argv.data());
    ::testing::internal::GetCapturedStderr();
    return std::holds_alternative<WorkerSettings>(parsed);
  };
  EXPECT_TRUE(parse({}));
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
    arguments.insert(arguments.begin(), "hilbert-ring-worker");
    std::vector<char*> argv;
    argv.reserve(arguments.size());
    for (std::string& argument : arguments) argv.push_back(argument.data());
    ::testing::internal::CaptureStderr();
    auto parsed = ParseWorkerSettings(static_cast<int>(argv.size()), argv.data());
    return std::pair(std::move(parsed), ::testing::internal::GetCapturedStderr());
  };
  const auto none = std::get<WorkerSettings>(parse({}).first).http;
  EXPECT_EQ(none.auth_token_file, "");
  EXPECT_TRUE(none.metrics_need_token);
  const auto http =
      std::get<WorkerSettings>(parse({"--http-tls-cert=c", "--http-tls-key=k",
                                      "--auth-token-file=t", "--metrics-need-token=false"})
                                   .first)
          .http;
  EXPECT_EQ(std::tie(http.cert, http.key, http.auth_token_file, http.metrics_need_token),
            std::make_tuple("c", "k", "t", false));
  for (const char* half : {"--http-tls-cert=c", "--http-tls-key=k"}) {
    const auto [parsed, said] = parse({half});
    EXPECT_TRUE(std::holds_alternative<int>(parsed)) << half;
    EXPECT_NE(said.find("--http-tls-cert and --http-tls-key go together"), std::string::npos)
        << said;
  }
  // A ready file does not replace them.
  const std::string file = ::testing::TempDir() + "/worker_http_clash";
  std::ofstream(file) << "\n";
  for (const std::string flag : {"--auth-token-file", "--http-tls-cert", "--http-tls-key"}) {
    const auto [parsed, said] =
        parse({"--http-tls-cert=c", "--http-tls-key=k", "--auth-token-file=t",
               absl::StrCat(flag, "=", file), absl::StrCat("--ready-file=", file)});
    EXPECT_NE(said.find("is the same file as " + flag), std::string::npos) << said;
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

TEST_F(Settings, Units) {
  const CoordinatorSettings settings =
      Parsed({"--memory-limit=64MiB", "--worker-timeout=0.5", "--job-timeout=90"});
  EXPECT_EQ(settings.memory_limit_bytes, 64 << 20);
  EXPECT_EQ(settings.worker_timeout.count(), 500);
  EXPECT_EQ(settings.job_timeout.count(), 90'000);
}

TEST_F(Settings, WhatIsWrongIsRefused) {
  for (const char* wrong :
       {"--grpc-port=70000", "--grpc-port=x", "--no-such-flag", "--worker-timeout=-1",
        "--memory-limit=many", "--log-level=loud", "--config=/no/such/file", "--spawn-workers=-1",
        "--cpu-instructions=avx9", "--device=gpu", "--device=cuda:x",
        "--device=auto:", "--gpu-memory-fraction=0", "--gpu-memory-fraction=2",
        "--attention-kernel=fast", "--gpu-exchange-blocks=65"}) {
    const auto parsed = Parse({wrong});
    ASSERT_TRUE(std::holds_alternative<int>(parsed)) << wrong;
    EXPECT_EQ(std::get<int>(parsed), 2) << wrong;
  }
  setenv("HILBERT_RING_MAX_QUEUE", "many", 1);
  EXPECT_TRUE(std::holds_alternative<int>(Parse({})));
}

// Flags whose values are numbers, as the help lists them.
template <typename Parser>
std::vector<std::string> NumericFlags(const Parser& parse) {
  ::testing::internal::CaptureStdout();
  parse({"--help"});
  std::istringstream help(::testing::internal::GetCapturedStdout());
  std::vector<std::string> flags;
  for (std::string line; std::getline(help, line);) {
    std::istringstream words(line);
    std::string flag, kind;
    words >> flag >> kind;
    if (flag.starts_with("--") &&
        (kind.starts_with("FLOAT") || kind.starts_with("INT") || kind.starts_with("UINT"))) {
      flags.push_back(flag);
    }
  }
  return flags;
}

std::variant<WorkerSettings, int> ParseWorker(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "hilbert-ring-worker");
  std::vector<char*> argv;
  argv.reserve(arguments.size());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ParseWorkerSettings(static_cast<int>(argv.size()), argv.data());
}

TEST_F(Settings, WhatIsNotANumberIsNone) {
  const auto refuses = [](const auto& parse) {
    const std::vector<std::string> flags = NumericFlags(parse);
    EXPECT_GE(flags.size(), 8u);
    for (const std::string& flag : flags) {
      for (const char* value : {"nan", "-nan", "NAN", "inf", "-inf", "1e400", "1s", ""}) {
        const std::string argument = absl::StrCat(flag, "=", value);
        const auto parsed = parse({argument});
        const int* const code = std::get_if<int>(&parsed);
        EXPECT_TRUE(code != nullptr && *code == 2) << argument;
      }
    }
  };
  refuses(Parse);
  refuses(ParseWorker);
}

// What is said on stderr when arguments are refused.
std::string RefusalOf(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStderr();
  const auto parsed = Parse(arguments);
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(std::holds_alternative<int>(parsed) && std::get<int>(parsed) == 2) << said;
  return said;
}

// A quarter and an eighth of it are whole milliseconds.
TEST_F(Settings, AWorkersTimeoutHasALeastValue) {
  EXPECT_EQ(Parsed({"--worker-timeout=0.1"}).worker_timeout.count(), 100);
  for (const char* less : {"0.001", "0.007", "0.0999", "0"}) {
    const std::string said = RefusalOf({absl::StrCat("--worker-timeout=", less)});
    EXPECT_NE(
        said.find(absl::StrCat("--worker-timeout: value ", less, " is no FLOAT in [0.1 - 1e+09]")),
        std::string::npos)
        << said;
  }
  EXPECT_EQ(Parsed({"--keep-shards=0.001"}).keep_shards.count(), 1);
}

TEST_F(Settings, OnlyARegularFileIsAConfiguration) {
  const std::string path = ::testing::TempDir() + "settings_pipe_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto refused = [](const std::string& file, const std::string& why) {
    const std::string said = RefusalOf({"--config=" + file});
    EXPECT_NE(said.find(absl::StrCat("--config: ", file, " ", why)), std::string::npos) << said;
  };
  refused(path, "must be a regular file, is a FIFO");
  refused("/dev/zero", "must be a regular file, is a device");
  refused("/no/such/file", "cannot be read: No such file");
  refused(::testing::TempDir(), "must be a regular file, is a folder");
  std::filesystem::remove(path);
  std::ofstream(path) << std::string((1 << 20) + 1, '\n');
  refused(path, "has more than 1048576 bytes");
  std::ofstream(path) << "grpc-port=1001\n";
  std::filesystem::create_symlink(path, path + ".link");
  EXPECT_EQ(Parsed({"--config=" + path + ".link"}).grpc_port, 1001);
  EXPECT_EQ(Parsed({"--config=/dev/zero", "--config=" + path}).grpc_port, 1001) << "the last";
  for (const char* end : {"", ".link"}) std::filesystem::remove(path + end);
}

TEST_F(Settings, AFileOfUnknownKeysIsRefused) {
  const std::string path = ::testing::TempDir() + "settings_unknown_test.ini";
  const auto refusal_of = [&path](const std::string& text) {
    std::ofstream(path) << text;
    return RefusalOf({"--config=" + path});
  };
  const std::string slip = refusal_of("max-queue=3\ngrpc-prot=1001\n");
  EXPECT_NE(slip.find("unknown key grpc-prot; the nearest known one is grpc-port"),
            std::string::npos)
      << slip;
  for (const char* other : {"grpc_port=1001", "--grpc-port=1001", "memory-share=0.5", "help=true",
                            "config=other.ini", "grpc-port 1001"}) {
    const std::string said = refusal_of(other);
    EXPECT_NE(said.find("unknown key"), std::string::npos) << other << ": " << said;
  }
  for (const char* section : {"[worker]\ngrpc-port=1001", "[worker]", "max-queue=3\n[worker]"}) {
    const std::string said = refusal_of(section);
    EXPECT_NE(said.find("section [worker] is not taken"), std::string::npos) << said;
  }
  for (const char* twice :
       {"grpc-port=1\nmax-queue=3\ngrpc-port=2\n", "grpc-port=1\ngrpc-port=2\n", "grpc-port=1,2"}) {
    const std::string said = refusal_of(twice);
    EXPECT_NE(said.find("grpc-port has several values"), std::string::npos)
        << twice << ": " << said;
  }
  std::ofstream(path) << "# a comment\n\ngrpc-port = 1001  # and another\nlog-level=\"warn\"\n";
  EXPECT_EQ(Parsed({"--config=" + path}).grpc_port, 1001);
  EXPECT_EQ(Parsed({"--config=" + path}).log_level, "warn");
}

TEST_F(Settings, AnUnknownFlagIsNamedWithTheNearest) {
  const std::string said = RefusalOf({"--grpc-prot=1001"});
  EXPECT_NE(said.find("--grpc-prot"), std::string::npos) << said;
  EXPECT_NE(said.find("; the nearest known one is --grpc-port"), std::string::npos) << said;
}

TEST_F(Settings, UnknownVariablesAreWarnedOf) {
  // The tests' own variables are not known either.
  const std::vector<std::string> before = Parsed({}).warnings;
  setenv("HILBERT_RING_MEMORY_SHARE", "0.5", 1);  // the worker's
  setenv("HILBERT_RING_SERVER", "here:1", 1);     // the command line's
  setenv("HILBERT_RING_PYTHON", "python3", 1);    // and the package's
  setenv("HILBERT_RING_BIN_DIR", "/usr/bin", 1);
  EXPECT_EQ(Parsed({}).warnings, before);
  setenv("HILBERT_RING_GRPC_PROT", "1001", 1);
  const std::vector<std::string> warnings = Parsed({}).warnings;
  EXPECT_EQ(warnings.size(), before.size() + 1);
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(),
                       "environment variable HILBERT_RING_GRPC_PROT is not one of the settings; "
                       "the nearest known one is HILBERT_RING_GRPC_PORT"),
            1);
}

TEST_F(Settings, HelpEndsWell) {
  const auto parsed = Parse({"--help"});
  ASSERT_TRUE(std::holds_alternative<int>(parsed));
  EXPECT_EQ(std::get<int>(parsed), 0);
}

}  // namespace
}  // namespace hilbert_ring::server
