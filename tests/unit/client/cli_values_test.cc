// A wrong flag or variable ends the program with exit code 2, never with a signal.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/run_cli.h"

namespace hilbert_ring::client {
namespace {

using ::testing::HasSubstr;

constexpr char kPlan[] = "plan --local --heads 1 --head-dim 8 --segments 2 --dilations 1 ";

TEST(CliValues, ASwitchIsTrueOrFalse) {
  const std::string job = absl::StrCat(kPlan, "--tokens 4 ");
  for (const char* name : {"--causal", "--no-average-groups"}) {
    for (const char* value : {"maybe", "1", "[]"}) {
      const CliResult result = RunCli(absl::StrCat(job, name, "=", value));
      EXPECT_EQ(result.code, 2) << name << value;
      EXPECT_THAT(result.err, HasSubstr(absl::StrCat(name, ": ")));
      EXPECT_THAT(result.err, HasSubstr("must be true or false"));
    }
  }
  // Causal jobs compute a triangle of pairs: 192 flop instead of 256.
  for (const auto& [flag, flop] : {std::pair{"--causal", "192"},
                                   {"--causal=true", "192"},
                                   {"--no-causal=false", "192"},
                                   {"--causal=false", "256"},
                                   {"--no-causal", "256"}}) {
    EXPECT_THAT(RunCli(job + flag).out, HasSubstr(absl::StrCat(flop, " flop"))) << flag;
  }
}

TEST(CliValues, EachCommandRefusesASwitchThatIsNeither) {
  for (const char* arguments :
       {"attend --causal=maybe --out o", "verify --q q --k k --v v --out o --no-causal=maybe",
        "attend-many jobs --average-groups=maybe", "encode --plan=x --model m --tiles t",
        "plan --local=x", "--json=x status", "status --tls=x"}) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_THAT(result.err, HasSubstr("must be true or false")) << arguments;
  }
  const CliResult variable = RunShell("HILBERT_RING_TLS=1x $CLI status");
  EXPECT_EQ(variable.code, 2);
  EXPECT_THAT(variable.err, HasSubstr("--tls (HILBERT_RING_TLS): 1x, must be true or false"));
  EXPECT_EQ(RunShell("HILBERT_RING_TLS=1x $CLI status --tls=x --json").code, 2);
}

TEST(CliValues, AKeepaliveIntervalIsTenSecondsToADay) {
  for (const char* value : {"9.9", "86401", "ten", "nan"}) {
    const CliResult result = RunCli(absl::StrCat("--keepalive-interval=", value, " status"));
    EXPECT_EQ(result.code, 2) << value;
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("--keepalive-interval is ", value,
                                                   ", must be 10 to 86400 seconds")));
  }
  const std::string variable = "HILBERT_RING_KEEPALIVE_INTERVAL=9.9 $CLI ";
  EXPECT_EQ(RunShell(variable + "status").code, 2);
  EXPECT_EQ(RunShell(variable + "--help").code, 0);
  EXPECT_EQ(RunCli("--keepalive-interval=330 --server=localhost:1 status").code, 1) << "no service";
}

TEST(CliValues, AWrongSwitchKeepsNobodyFromTheHelp) {
  const char* plan = "plan --local --tokens 4 --heads 1 --head-dim 8 --segments 2 --dilations 1";
  for (const char* arguments :
       {"--help", "status -h", "--version", "version", "completion bash", plan}) {
    EXPECT_EQ(RunShell(absl::StrCat("HILBERT_RING_TLS=maybe $CLI ", arguments)).code, 0)
        << arguments;
  }
  for (const char* arguments : {"plan --causal=x --help", "--server= plan -h", "--json=x --version",
                                "plan --tokens= 5 --help"}) {
    EXPECT_EQ(RunCli(arguments).code, 0) << arguments;
  }
  EXPECT_THAT(RunCli("cancel --caller --help --json=x job").err,
              HasSubstr("--json: x, must be true or false"));
}

// CLI11 would use the next argument as the value.
TEST(CliValues, AnOptionThatEndsWithItsSignHasNoValue) {
  for (const char* arguments :
       {"attend --lse= --out o", "attend --follow= --out o", "--server= status",
        "plan --local --causal= --tokens 4", "attend-many jobs --tokens=", "verify --rows= 5"}) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_THAT(result.err, HasSubstr("has no value")) << arguments;
  }
}

TEST(CliValues, NumbersAreDecimal) {
  EXPECT_THAT(RunCli(absl::StrCat(kPlan, "--tokens 0064")).out, HasSubstr("64 tokens over"));
  for (const auto& [arguments, flag] :
       {std::pair{"plan --local --tokens 0x40", "--tokens"},
        {"plan --local --segments 4,0x8", "--segments"},
        {"plan --local --segments '[]'", "--segments"},
        {"plan --local --scale 0x10", "--scale"},
        {"plan --local --workers 0x2", "--workers"},
        {"attend --out o --deadline 0x10", "--deadline"},
        {"attend --out o --max-attempts +5", "--max-attempts"},
        {"verify --q q --k k --v v --out o --seed -1", "--seed"},
        {"encode --model m --tiles t --attention-map-layer 0x1", "--attention-map-layer"}}) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_THAT(result.err, HasSubstr(flag)) << arguments;
  }
}

}  // namespace
}  // namespace hilbert_ring::client
