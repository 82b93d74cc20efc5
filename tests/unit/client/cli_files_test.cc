// Which files the command line reads, and which it must not write.
#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/fake_service.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A golden case's inputs in a folder of their own, so that they can be overwritten.
class CliPaths : public testing::Test {
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

TEST_F(CliPaths, OutputsMayReplaceOtherFiles) {
  const FakeService service;
  files_.Write("old.npy", "old");
  const CliResult right = Attend(service.address(), "hard.npy", {{"--out", "old.npy"}});
  EXPECT_EQ(right.code, 0) << right.err;
  EXPECT_TRUE(ReadFile(files_.Path("old.npy")) == ReadFile(files_.Path("q.npy")));
}

}  // namespace
}  // namespace hilbert_ring::client
