#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class CliMany : public ::testing::Test {
 protected:
  void SetUp() override {
    files_.WriteNpy("q", wire::NpyType::kFloat32, {3, 1, 8}, std::vector<float>(24, 0.5f));
  }

  CliResult Run(const std::string& jobs) const { return RunWith(service_.address(), jobs); }
  static CliResult RunWith(const std::string& server, const std::string& jobs) {
    return RunCli(
        absl::StrCat("attend-many --server ", server, " --segments 8 --dilations 1 ", jobs));
  }

  // Runs jobs of three tokens; the file of q is missing in job `wrong`.
  CliResult RunLines(int jobs, int wrong) const { return Run(Lines(jobs, wrong)); }
  std::string Lines(int jobs, int wrong) const {
    std::string lines;
    for (int line = 1; line <= jobs; ++line) {
      absl::StrAppend(&lines, R"({"q": ")", files_.Path(line == wrong ? "none" : "q"),
                      R"(", "k": ")", files_.Path("q"), R"(", "v": ")", files_.Path("q"),
                      R"(", "out": ")", files_.Path(absl::StrCat("out", line)), "\"}\n");
    }
    return files_.Write("jobs.jsonl", lines);
  }

  const TestFiles files_;
  const FakeService service_;
};

TEST_F(CliMany, WhatIsNoFileOfJobsIsRefused) {
  const auto refused = [this](const std::string& jobs, const std::string& what) {
    const CliResult result = Run(jobs);
    EXPECT_EQ(result.code, 2) << jobs;
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_EQ(result.out, "");
  };
  refused(files_.Path(""), "cannot read: Is a directory");
  refused("- < /dev/null", "stdin: has no jobs");
  refused(files_.Write("blank.jsonl", "\n \n"), "blank.jsonl: has no jobs");
  EXPECT_THAT(service_.records(), SizeIs(0));
}

TEST_F(CliMany, ALineThatIsNoJobIsRefused) {
  const std::string q = files_.Path("q"), out = files_.Path("out");
  const auto line = [&](const std::string& more) {
    return absl::StrCat(R"({"q": ")", q, R"(", "k": ")", q, R"(", "v": ")", q, R"(", "out": ")",
                        out, "\"", more, "}\n");
  };
  const std::string nul("\0 more", 6);
  for (const auto& [text, why] :
       {std::pair<std::string, const char*>{line(R"(, "out": "b")"),
                                            "field \"out\" is given more than once"},
        {line(R"(, "spec": {"ordering": {"curve": "hilbert", "curve": "morton"}})"), "\"curve\""},
        {line("") + "{} {}\n", "line 2: the job is malformed JSON"},
        {"[1]\n", "line 1: expected an object"},
        {absl::StrCat(line(""), nul, "\n"), "line 2: the job is malformed JSON: it has a NUL"},
        {line(R"(, "lse": "z.npy\u0000.txt")"),
         "line 1: lse \"z.npy\\x00.txt\": a path has no NUL"},
        {line(R"(, "spec": {"ordering": {"curve": "hilbert", "coords_file": "c\u0000"}})"),
         "a path has no NUL"},
        {line(R"(, "spec": {"scale": "x"})"), "scale is \"x\""},
        {line(R"(, "coords": "c", "spec": {"ordering": 3})"), "line 1: "}}) {
    const CliResult result = Run(files_.Write("odd.jsonl", text));
    EXPECT_EQ(result.code, 2) << text;
    EXPECT_THAT(result.err, HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(out)) << text;
  }
  EXPECT_THAT(service_.records(), SizeIs(0));
}

TEST_F(CliMany, ALineThatCannotBeOpenedLaterFailsAlone) {
  const CliResult result = RunLines(130, 129);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("line 129: "), HasSubstr("none")));
  EXPECT_THAT(result.out, HasSubstr("130 jobs, 1 failed, 387 tokens"));
  ASSERT_THAT(service_.records(), SizeIs(2));
  EXPECT_THAT(service_.records()[0].open.spec().sequence_lengths(), SizeIs(128));
  EXPECT_TRUE(std::filesystem::exists(files_.Path("out130")));
}

TEST_F(CliMany, AnInputThatShrinksFailsItsOwnJobAlone) {
  const std::string shrinks = files_.Write("shrinks", ReadFile(files_.Path("q")));
  const FakeService service(
      {.before_admitted = [&] { std::filesystem::resize_file(shrinks, 100); }});
  std::string lines = ReadFile(Lines(3, 2));
  lines.replace(lines.find("none"), 4, "shrinks");
  const CliResult result = RunWith(service.address(), files_.Write("some.jsonl", lines));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, HasSubstr("3 jobs, 1 failed"));
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("DATA_LOSS: line 2: ", shrinks,
                                                 ": was shortened while it was read")));
}

}  // namespace
}  // namespace hilbert_ring::client
