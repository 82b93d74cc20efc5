// Which files the command line reads, and which it must not write.
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
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A golden case's inputs in a folder of their own, so that they can be overwritten.
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

  // outputs: options with names of files in the folder.
  CliResult Attend(const std::string& server, const std::string& q,
                   const std::map<std::string, std::string>& outputs) const {
    std::string arguments =
        absl::StrCat("attend --server ", server, " --q ", files_.Path(q), " --k ",
                     files_.Path("k.npy"), " --v ", files_.Path("v.npy"), " --coords ",
                     files_.Path("coords.npy"), " --spec ", files_.Path("case.json"));
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
    std::string one, other;  // options that the message names
  };
  const std::vector<Case> cases = {
      {"q.npy", {{"--out", "q.npy"}}, "--out", "--q"},
      {"q.npy", {{"--out", "folder/../q.npy"}}, "--out", "--q"},
      {"q.npy", {{"--out", "here/q.npy"}}, "--out", "--q"},
      {"q.npy", {{"--out", "symbolic.npy"}}, "--out", "--q"},
      {"symbolic.npy", {{"--out", "q.npy"}}, "--out", "--q"},
      {"q.npy", {{"--out", "hard.npy"}}, "--out", "--q"},
      {"q.npy.partial", {{"--out", "q.npy"}}, "--out", "--q"},
      {"q.npy", {{"--out", "o.npy"}, {"--lse", "k.npy"}}, "--lse", "--k"},
      {"q.npy", {{"--out", "o.npy"}, {"--lse", "coords.npy"}}, "--lse", "--coords"},
      {"q.npy", {{"--out", "o.npy"}, {"--report", "case.json"}}, "--report", "--spec"},
      {"q.npy", {{"--out", "o.npy"}, {"--report", "v.npy"}}, "--report", "--v"},
      {"q.npy", {{"--out", "o.npy"}, {"--lse", "o.npy"}}, "--out", "--lse"},
      {"q.npy", {{"--out", "o.npy"}, {"--lse", "here/o.npy"}}, "--out", "--lse"},
      {"q.npy", {{"--out", "o.npy"}, {"--lse", "o.npy.partial"}}, "--out", "--lse"},
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
  const std::string tensors = absl::StrCat(" --q ", path("q.npy"), " --k ", path("k.npy"), " --v ",
                                           path("v.npy"), " --coords ", path("coords.npy"));
  const std::string attend =
      absl::StrCat("attend --server ", service.address(), tensors, " --spec ", path("case.json"));
  const std::string token = absl::StrCat(" --token-file ", path("token"));
  const std::string tls = absl::StrCat(" --tls --ca ", path("ca.pem"), " --cert ", path("cert.pem"),
                                       " --key ", path("key.pem"));
  const std::string line =
      absl::StrCat(R"({"q": ")", path("q.npy"), R"(", "k": ")", path("k.npy"), R"(", "v": ")",
                   path("v.npy"), R"(", "out": ")", path("token"), R"("})");
  files_.Write("jobs", line);
  const std::string out = absl::StrCat(" --out ", path("o.npy"));
  const std::string stream =
      absl::StrCat(" --stream --segments 2 --dilations 1 --heads 1 --head-dim 8 --dtype float32");
  struct Case {
    std::string command, names;
  };
  const std::vector<Case> cases = {
      {absl::StrCat("$CLI ", attend, token, " --out ", path("token")), "--token-file"},
      {absl::StrCat("$CLI ", attend, token, out, " --lse ", path("token")), "--token-file"},
      {absl::StrCat("$CLI ", attend, token, out, " --trace ", path("token")), "--token-file"},
      {absl::StrCat("HILBERT_RING_TOKEN_FILE=", path("token"), " $CLI ", attend, out, " --report ",
                    path("token")),
       "--token-file"},
      {absl::StrCat("$CLI ", attend, tls, out, " --report ", path("ca.pem")), "--ca"},
      {absl::StrCat("$CLI ", attend, tls, out, " --report ", path("cert.pem")), "--cert"},
      {absl::StrCat("$CLI ", attend, tls, " --out ", path("key.pem")), "--key"},
      {absl::StrCat("HILBERT_RING_KEY=", path("key.pem"), " HILBERT_RING_CERT=", path("cert.pem"),
                    " HILBERT_RING_TLS=true $CLI ", attend, " --out ", path("key.pem")),
       "--key"},
      {absl::StrCat("$CLI attend-many ", path("jobs"), " --server ", service.address(),
                    " --segments 2 --dilations 1", token),
       "--token-file"},
      {absl::StrCat("$CLI attend --server ", service.address(), stream, token, " --qkv ",
                    path("q.npy"), " --out ", path("token")),
       "--token-file"},
      {absl::StrCat("$CLI encode --server ", service.address(), token, " --model m --tiles ",
                    path("q.npy"), " --out ", path("token")),
       "--token-file"},
      {absl::StrCat("$CLI encode --server ", service.address(), token, " --model m --tiles ",
                    path("q.npy"), out, " --attention-map ", path("token")),
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

TEST_F(CliPaths, ATokenMayComeFromAPipe) {
  std::string shown;
  const FakeService service(
      {.data_root = [&shown](grpc::ServerContext& context, v1::GetDataRootResponse&) {
        const auto found = context.client_metadata().find("authorization");
        if (found != context.client_metadata().end())
          shown.assign(found->second.data(), found->second.size());
        return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no root");
      }});
  const CliResult result = RunShell(
      absl::StrCat("bash -c '$CLI attend --server ", service.address(), GoldenInputs("dense"),
                   " --out ", files_.Path("o.npy"), " --token-file <(echo secret)'"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(shown, "Bearer secret");
}

TEST_F(CliPaths, ALinkStaysAndItsTargetGetsTheOutput) {
  const FakeService service;
  std::filesystem::create_symlink("absent.npy", files_.Path("dangling.npy"));
  const CliResult result = Attend(service.address(), "q.npy", {{"--out", "dangling.npy"}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::is_symlink(files_.Path("dangling.npy")));
  EXPECT_TRUE(ReadFile(files_.Path("absent.npy")) == ReadFile(files_.Path("q.npy")));
}

TEST_F(CliPaths, AReportGoesToStdoutAlone) {
  const FakeService service;
  std::filesystem::create_symlink("/proc/self/fd/1", files_.Path("stdout"));
  std::filesystem::create_symlink("/proc/self/fd/2", files_.Path("stderr"));
  const std::string attend = absl::StrCat(
      "$CLI attend --server ", service.address(), " --q ", files_.Path("q.npy"), " --k ",
      files_.Path("k.npy"), " --v ", files_.Path("v.npy"), " --coords ", files_.Path("coords.npy"),
      " --spec ", files_.Path("case.json"), " --out ", files_.Path("o.npy"));
  const auto json = [](const std::string& text) {
    return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  };
  for (const std::string& path : {std::string("-"), files_.Path("stdout")}) {
    const CliResult piped = RunShell(absl::StrCat(attend, " --report ", path));
    EXPECT_EQ(piped.code, 0) << piped.err;
    EXPECT_TRUE(json(piped.out).contains("tokens")) << piped.out;
    EXPECT_TRUE(
        json(RunShell(absl::StrCat(attend, " --trace ", path)).out).contains("traceEvents"));
    // A regular file, which has something already.
    const std::string file = files_.Path("told");
    files_.Write("told", "{\"before\": ");
    const CliResult appended =
        RunShell(absl::StrCat("{ ", attend, " --report ", path, "; echo '}'; } >>", file));
    EXPECT_EQ(appended.code, 0) << appended.err;
    EXPECT_TRUE(json(ReadFile(file))["before"].contains("tokens")) << ReadFile(file);
    for (const std::string& other :
         {absl::StrCat(" --trace -"), std::string(" --json"), absl::StrCat(" --trace ", path)}) {
      const CliResult both = RunShell(absl::StrCat(attend, " --report ", path, other));
      EXPECT_EQ(both.code, 2) << other;
      EXPECT_THAT(both.err, HasSubstr("stdout"));
      EXPECT_EQ(both.out, "");
    }
  }
  EXPECT_THAT(RunShell(absl::StrCat(attend, " --report ", files_.Path("stderr"))).err,
              HasSubstr("\"tokens\""));
  EXPECT_TRUE(std::filesystem::is_symlink(files_.Path("stdout")));
  EXPECT_TRUE(std::filesystem::is_symlink(files_.Path("stderr")));
  EXPECT_FALSE(std::filesystem::exists("-"));
}

TEST_F(CliPaths, AReportIsAddedToWhatAShellHasOpen) {
  const FakeService service;
  const std::string log = files_.Write("log", "what the shift noted\n");
  for (const char* link : {"/proc/$$/fd/3", "/dev/fd/3"}) {
    const CliResult result = RunShell(
        absl::StrCat("exec 3>>", log, "; $CLI attend --server ", service.address(),
                     GoldenInputs("dense"), " --out ", files_.Path("o.npy"), " --report ", link));
    EXPECT_EQ(result.code, 0) << result.err;
  }
  EXPECT_THAT(ReadFile(log), AllOf(StartsWith("what the shift noted\n{"), HasSubstr("\n}\n{")));
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

TEST_F(CliPaths, OutputsMayReplaceOtherFiles) {
  const FakeService service;
  files_.Write("old.npy", "old");
  const CliResult right = Attend(service.address(), "hard.npy", {{"--out", "old.npy"}});
  EXPECT_EQ(right.code, 0) << right.err;
  EXPECT_TRUE(ReadFile(files_.Path("old.npy")) == ReadFile(files_.Path("q.npy")));
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

// Files that another process shortens while a job uses them. The service asks for their rows again,
// so that they are read then for sure.
TEST_F(CliPaths, AnInputThatShrinksIsAFailedJob) {
  const std::map<std::string, v1::Tensor> inputs = {
      {"q.npy", v1::TENSOR_Q}, {"v.npy", v1::TENSOR_V}, {"coords.npy", v1::TENSOR_COORDS}};
  for (const auto& [name, tensor] : inputs) {
    const std::string before = ReadFile(files_.Path(name));
    v1::Resend resend;
    resend.set_tensor(tensor);
    v1::Resend::Range* rows = resend.add_ranges();
    rows->set_first_row(0);
    rows->set_rows(450);
    const std::string path = files_.Path(name);
    const FakeService service(
        {.before_admitted = [&path] { std::filesystem::resize_file(path, 200); },
         .resends = {resend},
         .resend_after_chunks = 3});  // after all four
    const CliResult result = Attend(service.address(), "q.npy", {{"--out", "o.npy"}});
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("DATA_LOSS: "), HasSubstr(path),
                                  HasSubstr("was shortened while it was read")));
    EXPECT_FALSE(std::filesystem::exists(files_.Path("o.npy")));
    files_.Write(name, before);
  }
}

// Files that the workers read are the service's to look after, which says what became of them.
TEST_F(CliPaths, AnInputByReferenceThatShrinksIsWhatTheServiceSays) {
  files_.Write("mark", "word\n");
  FakeBehaviour once_more{.refuse = grpc::Status(grpc::StatusCode::UNAVAILABLE, "busy"),
                          .pushback = "1"};
  FakeBehaviour behaviour{
      .refuse = wire::ToGrpc(wire::ErrorOf(wire::reason::kFileChanged, "q.npy: was cut")),
      .earlier_calls = {once_more},
      .data_root = [this](grpc::ServerContext&, v1::GetDataRootResponse& root) {
        std::filesystem::resize_file(files_.Path("q.npy"), 200);
        root.set_path(files_.Path(""));
        root.set_mark_file("mark");
        root.set_mark("word");
        root.set_workers(1);
        return grpc::Status::OK;
      }};
  const FakeService service(behaviour);
  const CliResult result =
      Attend(service.address(), "q.npy", {{"--by-reference always --out", "o.npy"}});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("FAILED_PRECONDITION: q.npy: was cut"));
  EXPECT_THAT(result.err, HasSubstr("(reason FILE_CHANGED)"));
}

// Nothing of it is read from a page that is gone: the last page stays.
TEST_F(CliPaths, AnInputThatShrinksByAByteIsAFailedJob) {
  const std::string path = files_.Path("q.npy");
  const auto bytes = std::filesystem::file_size(path);
  const FakeService service(
      {.before_admitted = [&] { std::filesystem::resize_file(path, bytes - 1); }});
  const CliResult result = Attend(service.address(), "q.npy", {{"--out", "o.npy"}});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat(path, ": was shortened")));
}

TEST_F(CliPaths, AnOutputThatShrinksIsAFailedJobAndReplacesNothing) {
  files_.Write("o.npy", "before");
  const std::string partial = files_.Path("o.npy.partial");
  const FakeService service(
      {.change_outputs = [&](auto&) { std::filesystem::resize_file(partial, 0); }});
  const CliResult result = Attend(service.address(), "q.npy", {{"--out", "o.npy"}});
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("DATA_LOSS: "), HasSubstr(partial)));
  EXPECT_EQ(ReadFile(files_.Path("o.npy")), "before");
  EXPECT_FALSE(std::filesystem::exists(partial));
}

// A disk of its own, mounted on "folder" for the command line alone.
class CliFullDisk : public CliPaths {
 protected:
  void SetUp() override {
    CliPaths::SetUp();
    const CliResult mounted = RunShell(absl::StrCat(OnDisk(64), "true'"));
    if (mounted.code != 0) GTEST_SKIP() << "no rights to mount a disk: " << mounted.err;
  }

  // Up to the command, which a "'" ends.
  std::string OnDisk(int kibibytes) const {
    return absl::StrCat("unshare -Urm sh -c 'mount -t tmpfs -o size=", kibibytes, "k none ",
                        files_.Path("folder"), " && ");
  }

  // Attends, lists the disk on stdout and keeps a copy of out.npy.
  CliResult Attend(int kibibytes, const std::string& server) const {
    const std::string folder = files_.Path("folder");
    std::string arguments;
    for (const char* name : {"q", "k", "v", "coords"}) {
      absl::StrAppend(&arguments, " --", name, " ", files_.Path(name), ".npy");
    }
    return RunShell(
        absl::StrCat(OnDisk(kibibytes), "{ $CLI attend --server ", server, " --spec ",
                     files_.Path("case.json"), arguments, " --out ", folder, "/out.npy --report ",
                     folder, "/report.json >/dev/null; code=$?; ls ", folder, "; cp ", folder,
                     "/out.npy ", files_.Path("copy.npy"), " 2>/dev/null; exit $code; }'"));
  }
};

TEST_F(CliFullDisk, IsToldBeforeAnythingIsSent) {
  const FakeService service;
  const CliResult result = Attend(64, service.address());
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("/out.npy"),
                                HasSubstr("115328 bytes (65536 are free)")));
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(service.records().empty());
}

// Results of a long job outlive the lack of room for its report.
TEST_F(CliFullDisk, WithoutRoomForTheReportKeepsTheResults) {
  const FakeService service;
  const CliResult result = Attend(116, service.address());
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("report.json.partial: cannot write"),
                                HasSubstr("/out.npy is complete")));
  EXPECT_EQ(result.out, "out.npy\n");
  EXPECT_TRUE(ReadFile(files_.Path("copy.npy")) == ReadFile(files_.Path("q.npy")));
}

// " --q Q --k K --v V" of a golden case.
std::string Tensors(const std::string& golden_case) {
  std::string arguments;
  for (const char* name : {"q", "k", "v"}) {
    absl::StrAppend(&arguments, " --", name, " ",
                    GoldenPath(golden_case, absl::StrCat(name, ".npy")));
  }
  return arguments;
}

// What a job of the command line is to the service.
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
      Tensors("dense"), " --segments 16,64 --dilations 1,2 --mixing lse --causal --scale 0.25",
      " --tail zero --no-average-groups --sequence-lengths 64,64 --curve morton --scope kv",
      " --grid 8,8"));
  JobSpec expected;
  expected.tokens = 128;
  expected.heads = spec.heads;  // as the files say
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

TEST(CliSpec, FlagsReplaceFieldsOfTheFile) {
  const JobSpec file = SpecOf(GoldenInputs("hilbert_coords"));
  JobSpec changed = file;
  changed.causal = true;
  changed.mixing = Mixing::kHeadGroups;
  changed.ordering->curve = Curve::kMorton;
  EXPECT_EQ(FormatJobSpec(SpecOf(absl::StrCat(GoldenInputs("hilbert_coords"),
                                              " --causal --mixing head_groups --curve morton"))),
            FormatJobSpec(changed));
  changed = file;
  changed.ordering = Ordering{.window = 50};
  const std::string without_coords = absl::StrCat(Tensors("hilbert_coords"), " --spec ",
                                                  GoldenPath("hilbert_coords", "case.json"));
  EXPECT_EQ(FormatJobSpec(SpecOf(absl::StrCat(without_coords, " --window 50"))),
            FormatJobSpec(changed));
  changed.ordering.reset();
  EXPECT_EQ(FormatJobSpec(SpecOf(absl::StrCat(without_coords, " --ordering none"))),
            FormatJobSpec(changed));
  // Which lie next to the spec.
  EXPECT_EQ(FormatJobSpec(SpecOf(without_coords)), FormatJobSpec(file));
}

TEST(CliSpec, TheSpecComesFromStdin) {
  const std::string spec = GoldenPath("dense", "case.json");
  EXPECT_EQ(FormatJobSpec(SpecOf(absl::StrCat(Tensors("dense"), " --spec - <", spec))),
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
  const std::string dense = Tensors("dense");
  EXPECT_THAT(failure(dense), HasSubstr("segments is required: give --segments and --dilations, or "
                                        "a --spec that has them"));
  EXPECT_THAT(failure(absl::StrCat(dense, " --segments 8 --dilations 1,2")),
              HasSubstr("segments has 1 entries, but dilations has 2"));
  EXPECT_THAT(failure(absl::StrCat(dense, " --segments 8 --dilations 1 --mixing mean")),
              HasSubstr("mixing is \"mean\""));
  EXPECT_THAT(failure(absl::StrCat(dense, " --segments 8 --dilations 1 --grid 8,16")),
              HasSubstr("no ordering: name its curve"));
  EXPECT_THAT(failure(absl::StrCat(dense, " --segments 8 --dilations 1 --curve hilbert --window 4",
                                   " --grid 8,16")),
              HasSubstr("ordering.window is 4, but must be 0 with ordering.grid"));
  EXPECT_THAT(
      failure(absl::StrCat(dense, " --segments 8 --dilations 1 --curve none --grid 8,16")),
      HasSubstr("--curve none takes the ordering away: leave out --scope, --window, --grid"));
  for (const char* scale : {"nan", "inf", "-inf"}) {
    EXPECT_THAT(failure(absl::StrCat(dense, " --segments 8 --dilations 1 --scale ", scale)),
                HasSubstr(absl::StrCat("--scale: ", scale, ", must be a finite number")));
  }
  EXPECT_THAT(failure(absl::StrCat(dense, " --segments 8 --dilations 1 --curve hilbert --coords ",
                                   "$(printf '\\377').npy")),
              HasSubstr("\xff.npy: cannot open"));
  EXPECT_THAT(failure(absl::StrCat(dense, " --segments 8 --dilations 1 --tokens 100")),
              HasSubstr("tokens of Q is 128"));
  EXPECT_THAT(failure(absl::StrCat(dense, " --segments 8 --dilations 1 --dtype float16")),
              HasSubstr("the command line says dtype float16"));
}

TEST(CliSpec, CurveAutoTakesWhatSuitsThePlanAndSaysWhy) {
  constexpr char kGrid[] =
      "plan --local --json --tokens 4096 --heads 2 --head-dim 16 --segments 256 --dilations 1 "
      "--grid 64,64 --curve ";
  const auto plan = [&](const std::string& curve) { return RunCli(absl::StrCat(kGrid, curve)); };
  const CliResult chosen = plan("auto");
  EXPECT_EQ(chosen.code, 0) << chosen.err;
  EXPECT_THAT(chosen.err, HasSubstr("curve auto: hilbert, since "));
  EXPECT_EQ(chosen.out, plan("hilbert").out);
  const auto note = nlohmann::json::parse(chosen.err, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(note.is_object() && note.contains("note")) << chosen.err;
  const CliResult causal = plan("auto --causal");
  EXPECT_EQ(causal.code, 0) << causal.err;
  EXPECT_THAT(causal.err, HasSubstr("curve auto: none, since the plan computes"));
  const CliResult without = RunCli(
      "plan --local --json --tokens 4096 --heads 2 --head-dim 16 --segments 256 --dilations 1 "
      "--causal");
  EXPECT_EQ(causal.out, without.out);
  EXPECT_EQ(RunCli("plan --local --spec - --curve auto < /dev/null").code, 2);
}

TEST(CliSpec, HelpTellsOfTheFieldsAndOfTheOrderOfAxes) {
  for (const char* command : {"attend", "verify", "plan"}) {
    EXPECT_THAT(RunCli(absl::StrCat(command, " --help")).out,
                AllOf(HasSubstr("--segments N ..."), HasSubstr("--sequence-lengths"),
                      HasSubstr("--mixing head_groups|lse "), HasSubstr("--causal,--no-causal "),
                      HasSubstr("(x, y) or (x, y, z), that is (column, row, plane)")));
  }
}

TEST(CliSpec, VerifyAndPlanTakeFlagsToo) {
  const std::string spec = GoldenPath("longnet_mask", "case.json");
  const CliResult planned = RunCli(absl::StrCat("plan --local --json --workers 3 --spec ", spec));
  ASSERT_EQ(planned.code, 0) << planned.err;
  const auto document = ParseJobSpec(ReadFile(spec));
  ASSERT_TRUE(document.ok()) << document.status();
  const JobSpec& job = document->spec;
  std::string pattern = " --segments ";
  for (const Branch& branch : job.branches) absl::StrAppend(&pattern, branch.segment, ",");
  pattern.back() = ' ';
  pattern += "--dilations ";
  for (const Branch& branch : job.branches) absl::StrAppend(&pattern, branch.dilation, ",");
  pattern.back() = ' ';
  absl::StrAppend(&pattern, "--mixing ", job.mixing == Mixing::kLse ? "lse" : "head_groups",
                  " --tail ", job.tail == Tail::kZero ? "zero" : "mask",
                  job.causal ? " --causal" : "");
  const CliResult by_shape =
      RunCli(absl::StrCat("plan --local --json --workers 3", pattern, " --tokens ", job.tokens,
                          " --heads ", job.heads, " --kv-heads ", job.kv_heads, " --head-dim ",
                          job.head_dim, " --value-dim ", job.value_dim, " --dtype float32"));
  EXPECT_EQ(by_shape.code, 0) << by_shape.err;
  EXPECT_EQ(by_shape.out, planned.out);
  const CliResult by_files =
      RunCli(absl::StrCat("plan --local --json --workers 3", pattern, Tensors("longnet_mask")));
  EXPECT_EQ(by_files.out, planned.out) << by_files.err;
  const CliResult verified = RunCli(absl::StrCat("verify", pattern, Tensors("longnet_mask"),
                                                 " --out ", GoldenPath("longnet_mask", "out.npy")));
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
}

}  // namespace
}  // namespace hilbert_ring::client
