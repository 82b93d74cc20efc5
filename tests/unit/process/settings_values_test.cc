#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/unit/process/parsed_settings.h"

namespace hilbert_ring::server {
namespace {

TEST_F(Settings, Units) {
  const CoordinatorSettings settings =
      Parsed({"--memory-limit=64MiB", "--worker-timeout=0.5", "--job-timeout=90"});
  EXPECT_EQ(settings.memory_limit_bytes, 64 << 20);
  EXPECT_EQ(settings.worker_timeout.count(), 500);
  EXPECT_EQ(settings.job_timeout.count(), 90'000);
}

TEST_F(Settings, InvalidValuesAreRefused) {
  for (const char* wrong :
       {"--grpc-port=70000", "--grpc-port=x", "--no-such-flag", "--worker-timeout=-1",
        "--memory-limit=many", "--log-level=loud", "--config=/no/such/file", "--spawn-workers=-1",
        "--device=gpu", "--device=cuda:x", "--device=auto:"}) {
    const auto parsed = Parse({wrong});
    ASSERT_TRUE(std::holds_alternative<int>(parsed)) << wrong;
    EXPECT_EQ(std::get<int>(parsed), 2) << wrong;
  }
  Set("HILBERT_RING_MAX_QUEUE", "many");
  EXPECT_TRUE(std::holds_alternative<int>(Parse({})));
}

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

TEST_F(Settings, InvalidNumbersAreRefused) {
  const auto refuses = [](const auto& parse) {
    const std::vector<std::string> flags = NumericFlags(parse);
    EXPECT_GE(flags.size(), 8u);
    for (const std::string& flag : flags) {
      for (const char* value :
           {"nan", "-nan", "NAN", "inf", "-inf", "1e400", "1s", "0x1", "-1", ""}) {
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

// A quarter and an eighth of the least value are whole milliseconds.
TEST_F(Settings, AWorkersTimeoutHasALeastValue) {
  EXPECT_EQ(Parsed({"--worker-timeout=0.1"}).worker_timeout.count(), 100);
  for (const char* less : {"0.001", "0.007", "0.0999", "0"}) {
    const std::string message = RefusalOf({absl::StrCat("--worker-timeout=", less)});
    EXPECT_NE(message.find(
                  absl::StrCat("--worker-timeout: value ", less, " is no FLOAT in [0.1 - 1e+09]")),
              std::string::npos)
        << message;
  }
  EXPECT_EQ(Parsed({"--idle-timeout=0.001"}).idle_timeout.count(), 1);
}

// CLI11 would read 010 as 8, and -1 as 2^64 - 1 for unsigned numbers.
TEST_F(Settings, NumbersAreDecimal) {
  EXPECT_EQ(Parsed({"--spawn-workers=010"}).spawn_workers, 10);
  EXPECT_EQ(Parsed({"--max-tokens=0064"}).max_tokens, 64);
  EXPECT_EQ(Parsed({"--memory-limit=0010"}).memory_limit_bytes, 10);
  EXPECT_EQ(Parsed({"--memory-limit=010 kb"}).memory_limit_bytes, 10 << 10);
  Set("HILBERT_RING_MAX_QUEUE", "010");
  EXPECT_EQ(Parsed({}).max_queue, 10);
  for (const char* wrong :
       {"--max-queue=0x10", "--max-queue=1e2", "--max-queue=+5", "--max-queue= 5", "--max-queue=5 ",
        "--max-queue=99999999999999999999", "--max-tokens=0b1", "--worker-timeout=0x10"}) {
    EXPECT_EQ(Refused({wrong}).first, 2) << wrong;
  }
}

TEST_F(Settings, BytesAreNeitherNegativeNorTooMany) {
  EXPECT_EQ(Parsed({"--least-rate=4EiB"}).least_rate_bytes, int64_t{1} << 62);
  for (const char* flag :
       {"--stream-memory", "--waiting-memory", "--copy-memory", "--total-order-memory-limit",
        "--transport-memory", "--memory-limit", "--model-memory", "--least-rate"}) {
    for (const char* value :
         {"-1", "-1KiB", "KiB", "1.5GiB", "0x10", "1ki b", "1 2", "5EiB", "1ZiB",
          "99999999999999999999", "4611686018427387905", "[1]", "1e9"}) {
      const std::string argument = absl::StrCat(flag, "=", value);
      EXPECT_NE(RefusalOf({argument}).find(absl::StrCat(flag, ": ", value, ", must be ")),
                std::string::npos)
          << argument;
    }
  }
}

// Calls need at least this memory.
TEST_F(Settings, MemoryOfCallsHasALeastValue) {
  for (const auto& [flag, least] :
       {std::pair{"--waiting-memory", 5 << 20}, {"--transport-memory", 1 << 20}}) {
    EXPECT_EQ(Refused({absl::StrCat(flag, "=", least)}).first, 0) << flag;
    for (const int less : {0, 1024, least - 1}) {
      EXPECT_NE(RefusalOf({absl::StrCat(flag, "=", less)})
                    .find(absl::StrCat(flag, ": ", less, ", must be at least ", least, " bytes")),
                std::string::npos);
    }
  }
}

TEST_F(Settings, TruthValuesAreTrueOrFalse) {
  EXPECT_FALSE(Parsed({"--warm-up=false"}).warm_up);
  EXPECT_TRUE(Parsed({"--insecure"}).security.insecure);
  EXPECT_TRUE(Parsed({"--insecure=true"}).security.insecure);
  EXPECT_FALSE(Parsed({"--insecure=false"}).security.insecure);
  for (const char* flag : {"--insecure", "--warm-up", "--share-memory"}) {
    for (const char* value :
         {"", "1", "1x", "yes", "True", "maybe", "[]", "-", "99999999999999999999"}) {
      const std::string argument = absl::StrCat(flag, "=", value);
      const char* const why = *value == '\0' ? "has no value" : "must be true or false";
      EXPECT_NE(RefusalOf({argument, "--insecure"}).find(why), std::string::npos) << argument;
    }
  }
}

TEST_F(Settings, AVariableWithAWrongValueIsNamed) {
  Set("HILBERT_RING_GRPC_PORT", "many");
  EXPECT_NE(
      RefusalOf({}).find("--grpc-port (HILBERT_RING_GRPC_PORT): many, must be a whole number"),
      std::string::npos);
  EXPECT_EQ(Parsed({"--grpc-port=1001"}).grpc_port, 1001) << "a flag outranks the variable";
  EXPECT_EQ(Parsed({"--grpc-port", "1001"}).grpc_port, 1001);
  Clear("HILBERT_RING_GRPC_PORT");
  Set("HILBERT_RING_INSECURE", "1x");
  EXPECT_NE(RefusalOf({}).find("--insecure (HILBERT_RING_INSECURE): 1x, must be true or false"),
            std::string::npos);
  Set("HILBERT_RING_INSECURE", "");
  Set("HILBERT_RING_TLS_KEY", "k");
  EXPECT_NE(RefusalOf({}).find("--tls-cert and --tls-key (HILBERT_RING_TLS_KEY) go together"),
            std::string::npos);
}

// Kubernetes sets these variables in each pod of a namespace with Services of these names.
TEST_F(Settings, AServiceOfKubernetesIsNoPort) {
  const std::vector<std::string> before = Parsed({}).warnings;
  for (const char* service : {"", "GRPC_", "HTTP_", "MEMBERSHIP_"}) {
    const std::string name = absl::StrCat("HILBERT_RING_", service);
    Set(absl::StrCat(name, "PORT"), "tcp://10.0.0.1:8001");
    Set(absl::StrCat(name, "SERVICE_HOST"), "10.0.0.1");
    Set(absl::StrCat(name, "SERVICE_PORT"), "8001");
    Set(absl::StrCat(name, "PORT_8001_TCP_ADDR"), "10.0.0.1");
  }
  const CoordinatorSettings settings = Parsed({});
  EXPECT_EQ(settings.grpc_port, 8001);
  EXPECT_EQ(settings.http_port, 8002);
  EXPECT_EQ(settings.warnings.size(), before.size() + 3);
  const auto worker = ParseWorker({});
  EXPECT_EQ(std::get<WorkerSettings>(worker).port, 8101);
  EXPECT_EQ(std::get<WorkerSettings>(ParseWorker({"--port=9"})).port, 9);
  Set("HILBERT_RING_DATA_ROOT", "tcp://10.0.0.1:8001");
  EXPECT_EQ(Parsed({}).data_root, "tcp://10.0.0.1:8001") << "its flag is no port";
}

TEST_F(Settings, UnknownVariablesAreWarnedOf) {
  const std::vector<std::string> before = Parsed({}).warnings;
  // Variables of the worker, the command line and the package.
  Set("HILBERT_RING_MEMORY_SHARE", "0.5");
  Set("HILBERT_RING_SERVER", "here:1");
  Set("HILBERT_RING_PYTHON", "python3");
  Set("HILBERT_RING_BIN_DIR", "/usr/bin");
  EXPECT_EQ(Parsed({}).warnings, before);
  Set("HILBERT_RING_GRPC_PROT", "1001");
  const std::vector<std::string> warnings = Parsed({}).warnings;
  EXPECT_EQ(warnings.size(), before.size() + 1);
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(),
                       "environment variable HILBERT_RING_GRPC_PROT is not one of the settings; "
                       "the nearest known one is HILBERT_RING_GRPC_PORT"),
            1);
}

}  // namespace
}  // namespace hilbert_ring::server
