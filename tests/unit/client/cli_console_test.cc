// Output of the command line for people, programs and shells.
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<json> ErrorLines(const CliResult& result) {
  std::vector<json> lines;
  for (const auto line : absl::StrSplit(result.err, '\n', absl::SkipEmpty())) {
    lines.push_back(json::parse(std::string(line), nullptr, false));
    EXPECT_TRUE(lines.back().is_object()) << line;
  }
  return lines;
}

TEST(CliConsole, WhatAServiceSaysDoesNotSteerTheTerminal) {
  const FakeService service({.refuse = wire::ToGrpc(absl::InvalidArgumentError(
                                 "\x1b]0;title\x07 caf\u00e9 \u009b31m\nhilbert-ring: done"))});
  const TestFiles files;
  const std::string attend =
      absl::StrCat("attend --by-reference never --server ", service.address(),
                   GoldenInputs("dense"), " --out ", files.Path("out.npy"));
  const CliResult text = RunCli(attend);
  EXPECT_EQ(text.code, 1);
  EXPECT_EQ(
      text.err,
      "hilbert-ring: INVALID_ARGUMENT: \\x1b]0;title\\x07 caf\u00e9 \\xc2\\x9b31m\\nhilbert-ring: "
      "done\n");
  EXPECT_EQ(ErrorLines(RunCli(attend + " --json")).size(), 1u);
}

TEST(CliConsole, WhatCannotBePrintedIsAnError) {
  for (const char* printed : {"version", "--help",
                              "plan --local --tokens 64 --heads 1 --head-dim 8 "
                              "--segments 64 --dilations 1"}) {
    const CliResult result = RunShell(absl::StrCat("$CLI ", printed, " > /dev/full"));
    EXPECT_EQ(result.code, 1) << printed;
    EXPECT_EQ(result.err,
              "hilbert-ring: RESOURCE_EXHAUSTED: standard output: cannot write: No space left on "
              "device\n");
  }
  const CliResult json = RunShell("$CLI version --json > /dev/full");
  EXPECT_EQ(json.code, 1);
  EXPECT_EQ(ErrorLines(json).size(), 1u);
  const CliResult closed = RunShell("$CLI version >&-");
  EXPECT_EQ(closed.code, 1);
  EXPECT_THAT(closed.err, HasSubstr("standard output"));
  EXPECT_EQ(RunShell("$CLI unknown > /dev/full").code, 2);  // writes to stderr only
}

TEST(CliConsole, ErrorsAreJsonWhereResultsAre) {
  const FakeService service(
      {.fail = wire::ToGrpc(wire::WithReason(absl::AbortedError("a worker died"), "WORKER_DIED")),
       .earlier_calls = {{.refuse = wire::ToGrpc(wire::WithReason(
                              absl::UnavailableError("no \"worker\""), "NO_WORKERS"))}}});
  const TestFiles files;
  const CliResult result =
      RunCli(absl::StrCat("attend --json --server ", service.address(), GoldenInputs("dense"),
                          " --out ", files.Path("out.npy")));
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "");
  const std::vector<json> lines = ErrorLines(result);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["retry"]["attempt"], 2);
  EXPECT_EQ(lines[0]["retry"]["error"]["message"], "no \"worker\"");
  EXPECT_EQ(lines[1]["error"]["code"], "ABORTED");
  EXPECT_EQ(lines[1]["error"]["reason"], "WORKER_DIED");
  EXPECT_EQ(lines[1]["error"]["server"], service.address());
  const std::vector<json> wrong = ErrorLines(RunCli("atend --json"));
  ASSERT_EQ(wrong.size(), 1u);
  EXPECT_EQ(wrong[0]["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_THAT(wrong[0]["error"]["message"].get<std::string>(), HasSubstr("attend"));
}

TEST(CliConsole, UnknownCommandsAndOptionsAreNamedWithTheNearest) {
  for (const auto& [arguments, words] :
       {std::pair{"atend",
                  "INVALID_ARGUMENT: unknown command atend; the nearest known one is attend"},
        {"xyzzy", "unknown command xyzzy; hilbert-ring --help"},
        {"plan --spce x.json", "unknown option --spce; the nearest known one is --spec"},
        {"status --sever=localhost:1", "unknown option --sever; the nearest known one is --server"},
        {"attend", "required"}}) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_THAT(result.err, HasSubstr(words));
  }
}

TEST(CliConsole, WhatIsWrongIsNamedAsItWasGiven) {
  const TestFiles files;
  const std::string job =
      "plan --local --tokens 4 --heads 1 --head-dim 8 --dilations 1 --segments ";
  EXPECT_THAT(RunCli(job + "99999999999999999999").err,
              HasSubstr("--segments: 99999999999999999999 is beyond 64 bits"));
  EXPECT_THAT(RunCli(job + "2 --curve hilbret").err,
              HasSubstr("--curve: \"hilbret\", expected hilbert, morton, auto or none; the nearest "
                        "known one is hilbert"));
  EXPECT_THAT(RunCli("jobs first second third").err,
              HasSubstr("unexpected arguments first, second, third; "));
  EXPECT_THAT(RunCli("jobs first").err, HasSubstr("unexpected argument first; "));
  const std::string spec = files.Write("spec.json", "{\"segments\": [2],}");
  EXPECT_THAT(RunCli("plan --local --spec " + spec).err, HasSubstr("unexpected '}'"));
}

TEST(CliConsole, AVariableThatIsNearlyKnownIsWarnedOf) {
  const CliResult text = RunShell("HILBERT_RING_SERVR=localhost:1 $CLI version");
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.err, HasSubstr("HILBERT_RING_SERVR is not known; the nearest known one is "
                                  "HILBERT_RING_SERVER\n"));
  const std::vector<json> lines =
      ErrorLines(RunShell("HILBERT_RING_TOKEN_FIEL=x $CLI version --json"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0]["warning"].get<std::string>(), HasSubstr("HILBERT_RING_TOKEN_FILE"));
  // Settings of the service, and variables of this command.
  EXPECT_EQ(RunShell("HILBERT_RING_PORT=1 HILBERT_RING_TLS_CERT=x HILBERT_RING_AUTH_TOKEN_FILE=x "
                     "HILBERT_RING_GRPC_PORT=1 "
                     "HILBERT_RING_PYTHON=python3 HILBERT_RING_INSECURE=1 $CLI version")
                .err,
            "");
}

TEST(CliConsole, AServersAddressIsCheckedBeforeItIsCalled) {
  for (const char* command : {"status", "cancel j"}) {
    const CliResult url = RunCli(absl::StrCat(command, " --server http://localhost:8001"));
    EXPECT_EQ(url.code, 2);
    EXPECT_THAT(url.err, HasSubstr("--server: \"http://localhost:8001\" has a scheme"));
  }
  const CliResult port = RunShell("HILBERT_RING_SERVER=localhost:73537 $CLI status");
  EXPECT_EQ(port.code, 2);
  EXPECT_THAT(port.err, HasSubstr("HILBERT_RING_SERVER: \"localhost:73537\" has port \"73537\""));
  EXPECT_EQ(RunCli(absl::StrCat("plan --local --server localhost --spec ",
                                GoldenPath("dense", "case.json")))
                .code,
            0);
}

TEST(CliConsole, AServerThatIsNoCoordinatorIsSaidToBeNone) {
  // gRPC sends this status for an unknown method.
  const FakeService service(
      {.refuse = grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""), .refused_plans = 1});
  const CliResult result = RunCli(absl::StrCat("plan --server ", service.address(), " --spec ",
                                               GoldenPath("dense", "case.json")));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("UNIMPLEMENTED: the server has no such call: it is not "
                                          "a coordinator's gRPC port"),
                                HasSubstr(absl::StrCat("the server is ", service.address()))));
}

// Two tokens and one head; `odd` rows of q are NaN.
struct SmallJob {
  explicit SmallJob(const std::string& fields, int odd = 0) {
    std::vector<float> rows(2 * 8, 1.0f);
    const std::string good = files.WriteNpy("k.npy", wire::NpyType::kFloat32, {2, 1, 8}, rows);
    for (int row = 0; row < odd; ++row) {
      rows[8 * (1 - row)] = std::numeric_limits<float>::quiet_NaN();
    }
    const std::string q = files.WriteNpy("q.npy", wire::NpyType::kFloat32, {2, 1, 8}, rows);
    const std::string spec = files.Write(
        "spec.json",
        absl::StrCat(
            R"({"tokens": 2, "heads": 1, "head_dim": 8, "segments": [2], "dilations": [1])", fields,
            "}"));
    arguments = absl::StrCat(" --spec ", spec, " --q ", q, " --k ", good, " --v ", good);
  }
  TestFiles files;
  std::string arguments;
};

TEST(CliConsole, WhatASpecSeldomMeansIsSaid) {
  const FakeService service;
  const SmallJob job(R"(, "ordering": {"curve": "hilbert"})");
  const std::string attend = absl::StrCat("attend --server ", service.address(), job.arguments,
                                          " --out ", job.files.Path("out.npy"));
  const CliResult text = RunCli(attend);
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.err, AllOf(HasSubstr("hilbert-ring: note: ordering: "), HasSubstr("square")));
  const std::string plan = absl::StrCat("plan --local --json --spec ", job.files.Path("spec.json"));
  EXPECT_EQ(json::parse(RunCli(plan).out)["notes"].size(), 1u);
}

TEST(CliConsole, RowsThatAreNotFiniteAreCountedAndWarnedOf) {
  const FakeService service;  // returns q
  for (const int odd : {0, 1, 2}) {
    const SmallJob job("", odd);
    const std::string report_path = job.files.Path("report.json");
    const CliResult result =
        RunCli(absl::StrCat("attend --server ", service.address(), job.arguments, " --out ",
                            job.files.Path("out.npy"), " --report ", report_path));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(json::parse(ReadFile(report_path))["rows_not_finite"], odd);
    if (odd == 0) {
      EXPECT_EQ(result.err, "");
    } else {
      EXPECT_EQ(result.err, absl::StrCat("hilbert-ring: warning: ", odd,
                                         " of 2 rows of the output are not finite, the first for "
                                         "token ",
                                         2 - odd, "\n"));
    }
  }
}

}  // namespace
}  // namespace hilbert_ring::client
