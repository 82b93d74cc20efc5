// Files that the command line reads, and files that it must not write.
#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/spec/job_spec_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/certificates.h"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/resend_request.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A copy of a golden case's inputs, which may be overwritten.
class CliPaths : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"q.npy", "k.npy", "v.npy", "coords.npy", "case.json"}) {
      files_.Write(name, ReadFile(GoldenPath("hilbert_coords", name)));
    }
    files_.Write("q.npy.partial", ReadFile(GoldenPath("hilbert_coords", "q.npy")));
    std::filesystem::create_symlink("q.npy", files_.Path("symbolic.npy"));
    std::filesystem::create_hard_link(files_.Path("q.npy"), files_.Path("hard.npy"));
    std::filesystem::create_directory(files_.Path("folder"));
    std::filesystem::create_directory_symlink(".", files_.Path("here"));
  }

  std::map<std::string, std::string> Contents() const {
    std::map<std::string, std::string> contents;
    for (const std::string& name : files_.Names()) contents[name] = ReadFile(files_.Path(name));
    return contents;
  }

  std::string AttendOf(const std::string& server, const std::string& q = "q.npy") const {
    return absl::StrCat("attend --server ", server, " --q ", files_.Path(q), " --k ",
                        files_.Path("k.npy"), " --v ", files_.Path("v.npy"), " --coords ",
                        files_.Path("coords.npy"), " --spec ", files_.Path("case.json"));
  }

  CliResult Attend(const std::string& server, const std::string& q,
                   const std::map<std::string, std::string>& outputs) const {
    std::string arguments = AttendOf(server, q);
    for (const auto& [option, name] : outputs) {
      absl::StrAppend(&arguments, " ", option, " ", files_.Path(name));
    }
    return RunCli(arguments);
  }

  const TestFiles files_;
};

TEST_F(CliPaths, AnOutputNeverReplacesAnInputOrAnotherOutput) {
  struct Case {
    std::string q;
    std::map<std::string, std::string> outputs;
    std::string one, other;  // options in the message
  };
  const std::vector<Case> cases = {
      {"q.npy", {{"--out", "folder/../q.npy"}}, "--out", "--q"},
      {"symbolic.npy", {{"--out", "q.npy"}}, "--out", "--q"},
      {"q.npy", {{"--out", "hard.npy"}}, "--out", "--q"},
      {"q.npy.partial", {{"--out", "q.npy"}}, "--out", "--q"},
      {"q.npy", {{"--out", "o.npy"}, {"--lse", "k.npy"}}, "--lse", "--k"},
      {"q.npy", {{"--out", "o.npy"}, {"--lse", "coords.npy"}}, "--lse", "--coords"},
      {"q.npy", {{"--out", "o.npy"}, {"--report", "case.json"}}, "--report", "--spec"},
      {"q.npy", {{"--out", "o.npy"}, {"--report", "v.npy"}}, "--report", "--v"},
      {"q.npy", {{"--out", "o.npy"}, {"--lse", "here/o.npy"}}, "--out", "--lse"},
      {"q.npy", {{"--out", "o.npy.partial"}, {"--report", "o.npy"}}, "--out", "--report"},
  };
  const FakeService service;
  const auto before = Contents();
  for (const Case& bad : cases) {
    const CliResult result = Attend(service.address(), bad.q, bad.outputs);
    EXPECT_EQ(result.code, 2) << bad.outputs.at("--out") << ": " << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr(absl::StrCat(bad.one, " ")),
                      HasSubstr(absl::StrCat(bad.other, " ")), HasSubstr("the same file")));
    EXPECT_TRUE(Contents() == before) << bad.outputs.at("--out");
  }
  EXPECT_TRUE(service.records().empty());
}

TEST_F(CliPaths, AnOutputNeverReplacesWhatTheCallerShows) {
  const FakeService service;
  files_.Write("token", "secret\n");
  const testing::CertificateAuthority authority;
  authority.WriteTo(files_.Path("ca.pem"));
  authority.Issue({}, files_.Path("cert.pem"), files_.Path("key.pem"));
  const auto path = [&](const char* name) { return files_.Path(name); };
  const std::string attend = absl::StrCat("$CLI ", AttendOf(service.address()), " --out ");
  const std::string token = absl::StrCat(" --token-file ", path("token"));
  const std::string tls = absl::StrCat(path("o.npy"), " --tls --ca ", path("ca.pem"), " --cert ",
                                       path("cert.pem"), " --key ", path("key.pem"), " --report ");
  files_.Write("jobs", absl::StrCat(R"({"q": ")", path("q.npy"), R"(", "k": ")", path("k.npy"),
                                    R"(", "v": ")", path("v.npy"), R"(", "out": ")", path("token"),
                                    R"("})"));
  const std::string encode = absl::StrCat("$CLI encode --server ", service.address(), token,
                                          " --model m --tiles ", path("q.npy"));
  struct Case {
    std::string command, names;
  };
  const std::vector<Case> cases = {
      {absl::StrCat(attend, path("token"), token), "--token-file"},
      {absl::StrCat(attend, path("o.npy"), token, " --lse ", path("token")), "--token-file"},
      {absl::StrCat(attend, path("o.npy"), token, " --trace ", path("token")), "--token-file"},
      {absl::StrCat("HILBERT_RING_TOKEN_FILE=", path("token"), " ", attend, path("token")),
       "--token-file"},
      {absl::StrCat(attend, tls, path("ca.pem")), "--ca"},
      {absl::StrCat(attend, tls, path("cert.pem")), "--cert"},
      {absl::StrCat(attend, tls, path("key.pem")), "--key"},
      {absl::StrCat("$CLI attend-many ", path("jobs"), " --server ", service.address(),
                    " --segments 2 --dilations 1", token),
       "--token-file"},
      {absl::StrCat("$CLI attend --stream --segments 2 --dilations 1 --heads 1 --head-dim 8 ",
                    "--dtype float32 --server ", service.address(), token, " --qkv ", path("q.npy"),
                    " --out ", path("token")),
       "--token-file"},
      {absl::StrCat(encode, " --out ", path("token")), "--token-file"},
      {absl::StrCat(encode, " --out ", path("o.npy"), " --attention-map ", path("token")),
       "--token-file"},
  };
  const auto before = Contents();
  for (const Case& bad : cases) {
    const CliResult result = RunShell(bad.command);
    EXPECT_EQ(result.code, 2) << bad.command << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("the same file as the input ", bad.names, " ")));
    EXPECT_TRUE(Contents() == before) << bad.command;
  }
  EXPECT_TRUE(service.records().empty());
}

TEST_F(CliPaths, AReportGoesToStdoutAlone) {
  const FakeService service;
  std::filesystem::create_symlink("/proc/self/fd/1", files_.Path("stdout"));
  const std::string attend =
      absl::StrCat("$CLI ", AttendOf(service.address()), " --out ", files_.Path("o.npy"));
  const auto json = [](const std::string& text) {
    return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  };
  for (const std::string& path : {std::string("-"), files_.Path("stdout")}) {
    const CliResult piped = RunShell(absl::StrCat(attend, " --report ", path));
    EXPECT_EQ(piped.code, 0) << piped.err;
    EXPECT_TRUE(json(piped.out).contains("tokens")) << piped.out;
    EXPECT_TRUE(
        json(RunShell(absl::StrCat(attend, " --trace ", path)).out).contains("traceEvents"));
    for (const std::string& other :
         {absl::StrCat(" --trace -"), std::string(" --json"), absl::StrCat(" --trace ", path)}) {
      const CliResult both = RunShell(absl::StrCat(attend, " --report ", path, other));
      EXPECT_EQ(both.code, 2) << other;
      EXPECT_THAT(both.err, HasSubstr("stdout"));
      EXPECT_EQ(both.out, "");
    }
  }
  EXPECT_TRUE(std::filesystem::is_symlink(files_.Path("stdout")));
  EXPECT_FALSE(std::filesystem::exists("-"));
}

TEST(CliOutputs, AnArrayNeedsARegularFile) {
  const FakeService service;
  const TestFiles files;
  std::filesystem::create_symlink("/proc/self/fd/1", files.Path("stdout"));
  const std::string attend =
      absl::StrCat("attend --server ", service.address(), GoldenInputs("dense"), " --out ");
  for (const std::string& path : {std::string("-"), files.Path("stdout")}) {
    const CliResult result = RunCli(attend + path);
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err, HasSubstr(".npy takes a regular file"));
    EXPECT_EQ(result.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists("-"));
  EXPECT_TRUE(std::filesystem::is_symlink(files.Path("stdout")));
  EXPECT_TRUE(service.records().empty());
}

TEST_F(CliPaths, FilesThatTheCommandLineDoesNotNameAreInputsToo) {
  const FakeService service;
  const auto before = Contents();
  const std::string attend =
      absl::StrCat("attend --server ", service.address(), " --q ", files_.Path("q.npy"), " --k ",
                   files_.Path("k.npy"), " --v ", files_.Path("v.npy"));
  const std::string spec = files_.Path("case.json");
  CliResult result = RunCli(absl::StrCat(attend, " --spec ", spec, " --out ", files_.Path("o.npy"),
                                         " --lse ", files_.Path("coords.npy")));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("input --coords "));
  result = RunCli(absl::StrCat(attend, " --spec - --out ", files_.Path("o.npy"), " --report ", spec,
                               " --coords ", files_.Path("coords.npy"), " <", spec));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("input --spec -"));
  EXPECT_TRUE(Contents() == before);
}

// Another process shortens files while a job uses them. The service requests their rows again, so
// that they are read afterwards.
TEST_F(CliPaths, AnInputThatShrinksIsAFailedJob) {
  for (const auto& [name, tensor] : {std::pair<std::string, v1::Tensor>("v.npy", v1::TENSOR_V),
                                     {"coords.npy", v1::TENSOR_COORDS}}) {
    const std::string before = ReadFile(files_.Path(name));
    const std::string path = files_.Path(name);
    const FakeService service(
        {.before_admitted = [&path] { std::filesystem::resize_file(path, 200); },
         .resends = {Request(tensor, {{0, 450}})},
         .resend_after_chunks = 3});  // all four
    const CliResult result = Attend(service.address(), "q.npy", {{"--out", "o.npy"}});
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("DATA_LOSS: "), HasSubstr(path),
                                  HasSubstr("was shortened while it was read")));
    EXPECT_FALSE(std::filesystem::exists(files_.Path("o.npy")));
    files_.Write(name, before);
  }
}

// A failed report must not cost the results of a long job.
TEST_F(CliPaths, WithoutRoomForTheReportKeepsTheResults) {
  const FakeService service;
  const CliResult result = Attend(service.address(), "q.npy",
                                  {{"--out", "o.npy"}, {"--report /dev/full --lse", "l.npy"}});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("/dev/full: cannot write"), HasSubstr("o.npy")));
  EXPECT_TRUE(ReadFile(files_.Path("o.npy")) == ReadFile(files_.Path("q.npy")));
}

JobSpec SpecOf(const std::string& arguments) {
  const FakeService service;
  const TestFiles files;
  const CliResult result = RunCli(absl::StrCat("attend --server ", service.address(), " --out ",
                                               files.Path("o.npy"), arguments));
  EXPECT_EQ(result.code, 0) << result.err;
  if (result.code != 0) return {};
  const auto spec = wire::DecodeJobSpec(service.record().open.spec());
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(JobSpec{});
}

TEST(CliSpec, FlagsAloneAreAJob) {
  const JobSpec spec = SpecOf(absl::StrCat(
      GoldenTensors("dense"),
      " --segments 16,64 --dilations 1,2 --mixing lse --causal --scale 0.25",
      " --tail zero --no-average-groups --sequence-lengths 64,64 --curve morton --scope kv",
      " --grid 8,8"));
  JobSpec expected;
  expected.tokens = 128;
  expected.heads = spec.heads;  // from the files
  expected.kv_heads = spec.kv_heads;
  expected.head_dim = spec.head_dim;
  expected.value_dim = spec.value_dim;
  expected.branches = {{16, 1}, {64, 2}};
  expected.mixing = Mixing::kLse;
  expected.causal = true;
  expected.scale = 0.25;
  expected.tail = Tail::kZero;
  expected.average_groups = false;
  expected.sequence_lengths = {64, 64};
  expected.ordering = Ordering{.curve = Curve::kMorton, .scope = OrderScope::kKv, .grid = {8, 8}};
  EXPECT_EQ(FormatJobSpec(spec), FormatJobSpec(expected));
  EXPECT_GT(spec.heads, 0);
}

TEST(CliSpec, FlagsChangeScores) {
  const std::string job = GoldenTensors("dense") + " --segments 16 --dilations 1";
  const JobSpec spec =
      SpecOf(job + " --window 7,none --softcap 30 --sinks -1,0.5 --alibi-slopes 0.5,0.25");
  EXPECT_EQ(spec.window, Window{.left = 7});
  EXPECT_EQ(spec.softcap, 30);
  EXPECT_EQ(spec.sinks, (std::vector<double>{-1, 0.5}));
  EXPECT_EQ(spec.alibi, (Alibi{.slopes = {0.5, 0.25}}));
  EXPECT_EQ(SpecOf(job + " --window none,08").window, Window{.right = 8});
  EXPECT_EQ(SpecOf(job + " --curve hilbert --ordering-window 8").ordering->window, 8);
}

TEST(CliSpec, KeysOfAnotherNumber) {
  const std::string job = GoldenTensors("rect_packed") + " --segments 4096 --dilations 1";
  const JobSpec spec = SpecOf(job +
                              " --sequence-lengths 1,64,0,80,5 --key-sequence-lengths "
                              "200,64,9,157,0 --align start");
  EXPECT_EQ(spec.tokens, 150);
  EXPECT_EQ(spec.key_tokens, 430);
  EXPECT_EQ(spec.sequence_lengths, (std::vector<int64_t>{1, 64, 0, 80, 5}));
  EXPECT_EQ(spec.key_sequence_lengths, (std::vector<int64_t>{200, 64, 9, 157, 0}));
  EXPECT_EQ(spec.align, Align::kStart);
  const CliResult plan = RunCli(
      "plan --local --workers 2 --tokens 1 --key-tokens 4000 --heads 2 --head-dim 8 "
      "--segments 4000 --dilations 1");
  EXPECT_THAT(plan.out, HasSubstr("queries travel: "));
}

TEST(CliSpec, TheSpecComesFromStdin) {
  const std::string spec = GoldenPath("dense", "case.json");
  EXPECT_EQ(FormatJobSpec(SpecOf(absl::StrCat(GoldenTensors("dense"), " --spec - <", spec))),
            FormatJobSpec(SpecOf(GoldenInputs("dense"))));
  EXPECT_THAT(RunCli("plan --local --spec - </dev/null").err,
              HasSubstr("INVALID_ARGUMENT: stdin: the job spec is malformed JSON"));
}

TEST(CliSpec, ASpecThatNeverEndsIsRefused) {
  const CliResult result = RunCli("plan --local --spec /dev/zero");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("OUT_OF_RANGE: /dev/zero: has more than 268435456 bytes"));
}

TEST(CliSpec, FlagsThatContradictAreBadInput) {
  const auto failure = [](const std::string& arguments) {
    const CliResult result =
        RunCli(absl::StrCat("attend --server 127.0.0.1:1 --out /nowhere/o.npy", arguments));
    EXPECT_EQ(result.code, 2) << arguments;
    return result.err;
  };
  const std::string dense = GoldenTensors("dense");
  EXPECT_THAT(failure(dense), HasSubstr("segments is required: give --segments and --dilations"));
  const std::string whole = dense + " --segments 8 --dilations 1";
  for (const auto& [more, words] :
       {std::pair{",2", "segments has 1 entries, but dilations has 2"},
        {" --mixing mean", "mixing is \"mean\""},
        {" --grid 8,16", "no ordering: name its curve"},
        {" --curve none --grid 8,16", "--curve none takes the ordering away"},
        {" --scale nan", "--scale: nan, must be a finite number"},
        {" --sinks 1,nan", "--sinks: nan, must be a finite number"},
        {" --sinks 1", "sinks has 1 entries, must have 2"},
        {" --window 8", "--window: 8, must be LEFT,RIGHT, each a whole number or none"},
        {" --window 8,", "--window: 8,, must be LEFT,RIGHT"},
        {" --window -1,0", "window[0] is -1, must be at least 0"},
        {" --window 8,8 --curve hilbert", "window is [8, 8], must be absent with ordering"},
        {" --key-tokens 127", "key_tokens of K is 128 (axis 0 of shape (128, 2, 32)), must be 127"},
        {" --align middle", "align is \"middle\", must be \"end\" or \"start\""},
        {" --sequence-lengths 28,100 --key-sequence-lengths 100,28",
         "tokens is 100 with key_tokens 28, segments[0] is 8, must be at least the keys"},
        {" --curve hilbert --coords $(printf '\\377').npy", "\xff.npy: cannot open"},
        {" --tokens 100", "tokens of Q is 128"},
        {" --dtype float16", "with dtype float16 of the command line"}}) {
    EXPECT_THAT(failure(whole + more), HasSubstr(words));
  }
}

TEST(CliSpec, CurveAutoTakesWhatSuitsThePlanAndSaysWhy) {
  const auto plan = [&](const std::string& curve) {
    return RunCli(
        "plan --local --json --tokens 4096 --heads 2 --head-dim 16 --segments 256 "
        "--dilations 1 --grid 64,64 --curve " +
        curve);
  };
  const CliResult chosen = plan("auto");
  EXPECT_EQ(chosen.code, 0) << chosen.err;
  EXPECT_THAT(chosen.err, HasSubstr("curve auto: hilbert, since "));
  EXPECT_EQ(chosen.out, plan("hilbert").out);
  EXPECT_THAT(plan("auto --causal").err, HasSubstr("curve auto: none, since the plan computes"));
  EXPECT_EQ(RunCli("plan --local --spec - --curve auto < /dev/null").code, 2);
}

TEST(CliSpec, VerifyAndPlanTakeFlagsToo) {
  const std::string tensors = GoldenTensors("longnet_mask");
  const std::string pattern =
      " --segments 32,64,128,512 --dilations 1,2,4,8 --mixing lse --tail mask";
  const auto plan = [](const std::string& arguments) {
    const CliResult planned = RunCli("plan --local --json --workers 3" + arguments);
    EXPECT_EQ(planned.code, 0) << planned.err;
    return planned.out;
  };
  const std::string planned = plan(" --spec " + GoldenPath("longnet_mask", "case.json"));
  EXPECT_EQ(plan(pattern + " --tokens 500 --heads 8 --kv-heads 8 --head-dim 8 --value-dim 8"),
            planned);
  EXPECT_EQ(plan(pattern + tensors), planned);
  const CliResult verified = RunCli(
      absl::StrCat("verify", pattern, tensors, " --out ", GoldenPath("longnet_mask", "out.npy")));
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
}

}  // namespace
}  // namespace hilbert_ring::client
