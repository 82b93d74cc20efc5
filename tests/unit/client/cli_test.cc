// The command line as a process: exit codes, messages, files.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

TEST(Cli, AttendWritesItsFiles) {
  const FakeService service;
  const TestFiles files;
  const CliResult result =
      RunCli(absl::StrCat("attend --server ", service.address(), GoldenInputs("hilbert_coords"),
                          " --out ", files.Path("out.npy"), " --lse ", files.Path("lse.npy"),
                          " --report ", files.Path("report.json"), " --job-id j1 --deadline 60"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");  // no progress bar: not a terminal
  EXPECT_THAT(result.out, HasSubstr("450 tokens"));
  EXPECT_THAT(files.Names(), ElementsAre("lse.npy", "out.npy", "report.json"));
  EXPECT_EQ(ReadFile(files.Path("out.npy")), ReadFile(GoldenPath("hilbert_coords", "q.npy")));
  const auto report = nlohmann::json::parse(ReadFile(files.Path("report.json")));
  EXPECT_EQ(report["job_id"], "j1");
  EXPECT_EQ(report["ring_generation"], 0);  // printed although it is the default
  EXPECT_TRUE(service.record().tensors.contains(v1::TENSOR_COORDS));
}

TEST(Cli, OutputsThatTheServiceDidNotWriteAreMissed) {
  const TestFiles files;
  files.Write("mark", "word\n");
  const FakeService service({.data_root = [&](grpc::ServerContext&, v1::GetDataRootResponse& root) {
    root.set_path(files.Path(""));
    root.set_mark_file("mark");
    root.set_mark("word");
    root.set_workers(1);
    return grpc::Status::OK;
  }});
  std::string attend =
      absl::StrCat("attend --deadline 60 --by-reference always --server ", service.address(),
                   " --out ", files.Path("out.npy"), " --spec ", GoldenPath("dense", "case.json"));
  for (const char* name : {"q", "k", "v"}) {
    const std::string file = absl::StrCat(name, ".npy");
    absl::StrAppend(&attend, " --", name, " ",
                    files.Write(file, ReadFile(GoldenPath("dense", file))));
  }
  EXPECT_THAT(RunCli(attend).err, HasSubstr("out.npy: cannot open"));
  files.Write("out.npy", ReadFile(GoldenPath("dense", "out.npy")));
  EXPECT_THAT(RunCli(attend).err, HasSubstr("out.npy: was not written"));
}

TEST(Cli, ADataRootIsWaitedForUntilTheDeadline) {
  const FakeService service(
      {.data_root = [](grpc::ServerContext& context, v1::GetDataRootResponse&) {
        while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
        return grpc::Status::CANCELLED;
      }});
  const TestFiles files;
  const CliResult result = RunShell(
      absl::StrCat("timeout -s KILL 20 $CLI attend --deadline 0.3 --by-reference auto --server ",
                   service.address(), GoldenInputs("dense"), " --out ", files.Path("out.npy")));
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("DEADLINE_EXCEEDED"));
}

TEST(Cli, FilesThatTheServiceDoesNotSeeAreSentUnlessItMustNotBe) {
  const FakeService service;  // has no data root
  const TestFiles files;
  const std::string attend = absl::StrCat("attend --server ", service.address(),
                                          GoldenInputs("dense"), " --out ", files.Path("out.npy"));
  const CliResult never_sent = RunCli(attend + " --by-reference always");
  EXPECT_EQ(never_sent.code, 1);
  EXPECT_THAT(files.Names(), IsEmpty());
  EXPECT_TRUE(service.records().empty());
  EXPECT_EQ(RunCli(attend).code, 0);
  EXPECT_EQ(RunCli(attend + " --by-reference sometimes").code, 2);
}

TEST(Cli, AFailedJobLeavesNoFiles) {
  const FakeService service(
      {.fail = wire::ToGrpc(wire::WithReason(absl::AbortedError("a worker died"), "WORKER_DIED"))});
  const TestFiles files;
  const CliResult result =
      RunCli(absl::StrCat("attend --server ", service.address(), GoldenInputs("dense"), " --out ",
                          files.Path("out.npy"), " --lse ", files.Path("lse.npy"), " --report ",
                          files.Path("report.json")));
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err, "hilbert-ring: ABORTED: a worker died (reason WORKER_DIED)\n");
  EXPECT_THAT(files.Names(), IsEmpty());
}

TEST(Cli, AttendTellsOfEachRetry) {
  const FakeService service(
      {.earlier_calls = {{.refuse = wire::ToGrpc(wire::WithReason(
                              absl::UnavailableError("no worker is there"), "NO_WORKERS"))},
                         {.refuse = wire::ToGrpc(wire::WithReason(
                              absl::ResourceExhaustedError("8 jobs wait"), "QUEUE_FULL")),
                          .retry_after = "10"}}});
  const TestFiles files;
  const std::string attend = absl::StrCat("attend --server ", service.address(),
                                          GoldenInputs("dense"), " --out ", files.Path("out.npy"));
  const CliResult result = RunCli(attend);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              MatchesRegex("hilbert-ring: UNAVAILABLE: no worker is there \\(reason NO_WORKERS\\); "
                           "attempt 2 follows in 0\\.[01] s\n"
                           "hilbert-ring: RESOURCE_EXHAUSTED: 8 jobs wait \\(reason QUEUE_FULL\\); "
                           "attempt 3 follows in 0\\.[0-2] s\n"));
  EXPECT_THAT(result.out, HasSubstr("attempts 3, retries by the service 0\n"));
  EXPECT_THAT(RunCli(attend).out, HasSubstr("attempts 1, retries by the service 0\n"));
}

TEST(Cli, BadInputIsFoundBeforeAnythingIsSent) {
  const TestFiles files;
  const std::string q = GoldenPath("dense", "q.npy");
  const CliResult result = RunCli(
      absl::StrCat("attend --server 127.0.0.1:1 --q ", q, " --k ", q, " --v ", q, " --spec ",
                   GoldenPath("dense", "case.json"), " --out ", files.Path("no/such/o.npy")));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("NOT_FOUND"), HasSubstr(files.Path("no/such/o.npy"))));
  EXPECT_THAT(files.Names(), IsEmpty());
}

TEST(Cli, UsageErrors) {
  const CliResult nothing = RunCli("");
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(
      nothing.err,
      HasSubstr("no command is given: attend, attend-many, encode, models, plan, status, jobs, "));
  const CliResult no_path = RunCli(absl::StrCat("attend --out ''", GoldenInputs("dense")));
  EXPECT_EQ(no_path.code, 2);
  EXPECT_THAT(no_path.err, HasSubstr("--out: is empty, expected a path"));
  EXPECT_EQ(RunCli("plan --spec x --workers 0").code, 2);
  const std::string dense = GoldenInputs("dense") + " --out o.npy";
  for (const auto& [arguments, flag] :
       {std::pair<std::string, const char*>{"verify --rows -1", "rows"},
        {"attend --deadline 0" + dense, "deadline"},
        {"attend --deadline inf" + dense, "deadline"},
        {"attend --max-attempts 0" + dense, "max-attempts"}}) {
    const CliResult result = RunCli(arguments);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("hilbert-ring: INVALID_ARGUMENT: --", flag)));
  }
  const CliResult help = RunCli("--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("verify"), HasSubstr("Exit codes")));
}

TEST(Cli, PlanExplainsAJob) {
  const std::string spec = absl::StrCat(" --spec ", GoldenPath("spanning_segment", "case.json"));
  const CliResult local = RunCli(absl::StrCat("plan --local --workers 3", spec));
  ASSERT_EQ(local.code, 0) << local.err;
  EXPECT_THAT(local.out, AllOf(HasSubstr("3 workers"), HasSubstr("naive ring"),
                               HasSubstr("local segments"), HasSubstr("memory")));
  const FakeService service;
  const CliResult asked =
      RunCli(absl::StrCat("plan --workers 3", spec, " --server ", service.address()));
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_EQ(asked.out, local.out);
}

TEST(Cli, JobsListsTheCallersJobs) {
  const FakeService service;
  const std::string server = absl::StrCat(" --server ", service.address());
  const CliResult text = RunCli(absl::StrCat("jobs", server));
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"job-a", "computing", "25.0 %", "4,096", "2.50 s ago"}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  const CliResult json = RunCli(absl::StrCat("--json jobs", server));
  EXPECT_EQ(json.code, 0) << json.err;
  const auto job = nlohmann::json::parse(json.out)["jobs"][0];
  EXPECT_EQ(job["job_id"], "job-a");
  EXPECT_EQ(job["state"], "STATE_COMPUTING");
  EXPECT_EQ(job["workers"], 3);
}

TEST(Cli, CancelEndsAJob) {
  const FakeService service;
  const std::string server = absl::StrCat(" --server ", service.address());
  const CliResult good = RunCli(absl::StrCat("cancel job-a", server));
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("job-a"));
  const CliResult unknown = RunCli(absl::StrCat("cancel job-b", server));
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("NOT_FOUND"), HasSubstr("JOB_NOT_FOUND")));
  EXPECT_EQ(RunCli(absl::StrCat("cancel", server)).code, 2);
}

TEST(Cli, StatusShowsTheCluster) {
  const FakeService service;
  // The variable applies without the flag.
  const std::string status =
      absl::StrCat("HILBERT_RING_SERVER=", service.address(), " $CLI status");
  const CliResult text = RunShell(status);
  const CliResult json = RunShell(status + " --json");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("7.8.9"), HasSubstr("localhost:8101"),
                              HasSubstr("3.00 GiB"), HasSubstr("ring-a")));
  EXPECT_THAT(text.out, AllOf(HasSubstr("joining"),
                              HasSubstr("localhost:8102: cannot be reached at localhost:8102")));
  EXPECT_EQ(nlohmann::json::parse(json.out)["rings"][0]["generation"], 4);
}

TEST(Cli, VerifyTellsRightFromWrong) {
  const std::string inputs = GoldenInputs("longnet_mask");
  const std::string out = GoldenPath("longnet_mask", "out.npy");
  const std::string lse = absl::StrCat(" --lse ", GoldenPath("longnet_mask", "lse.npy"));
  const CliResult right = RunCli(absl::StrCat("verify --rows 20", inputs, " --out ", out, lse));
  EXPECT_EQ(right.code, 0) << right.out << right.err;
  EXPECT_THAT(right.out, HasSubstr("worst at token"));
  const TestFiles files;
  std::string bytes = ReadFile(out);
  bytes[bytes.size() - 1] = 0x7f;  // a large number in the last row
  const std::string wrong_path = files.Write("out.npy", bytes);
  const CliResult wrong =
      RunCli(absl::StrCat("verify --json --rows 20", inputs, " --out ", wrong_path, lse));
  EXPECT_EQ(wrong.code, 1) << wrong.err;
  const auto json = nlohmann::json::parse(wrong.out);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["lse"]["ok"], true);
}

}  // namespace
}  // namespace hilbert_ring::client
