#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string OutputOf(const std::string& command) {
  const TestFiles files;
  const std::string out = files.Path("out");
  EXPECT_EQ(std::system(absl::StrCat(command, " > ", out).c_str()), 0) << command;
  return ReadFile(out);
}

TEST(CliCompletion, ABashCompletesCommandsOptionsAndValues) {
  const TestFiles files;
  const std::string script = files.Write("script", RunCli("completion bash").out);
  const auto completions = [&](const std::string& words, int at) {
    return OutputOf(absl::StrCat("bash -c 'source ", script, "; COMP_WORDS=(hilbert-ring ", words,
                                 "); COMP_CWORD=", at, "; _hilbert_ring; echo ${COMPREPLY[*]}'"));
  };
  struct Case {
    const char* words;
    int at;
    const char* completed;
  };
  for (const Case& typed : std::vector<Case>{
           {"at", 1, "attend attend-many"},
           {"--ser", 1, "--server --server-name"},
           {"attend --outa", 2, "--outage-timeout"},
           {"--json attend --rep", 3, "--report"},
           {"plan --outa", 2, ""},
           {"completion z", 2, "zsh"},
           {"bench sw", 2, "sweep"},
           {"attend --mixing l", 3, "lse"},
           {"plan --curve \"\"", 3, "hilbert morton auto none"},
           {"plan --spec p", 3, ""},           // a file, not a command
           {"attend --mixing = l", 4, "lse"},  // bash splits --mixing=l
           {"attend --mixing =", 3, "head_groups lse"},
           {"attend --mixing=l", 2, "--mixing=lse"},
           {"draw pattern --se", 3, "--server --server-name --segments --sequence-lengths"}}) {
    EXPECT_EQ(completions(typed.words, typed.at), absl::StrCat(typed.completed, "\n"));
  }
}

TEST(CliCompletion, EachShellHasItsScript) {
  EXPECT_THAT(RunCli("completion zsh").out,
              AllOf(HasSubstr("#compdef hilbert-ring"), HasSubstr("'--outage-timeout=["),
                    HasSubstr("]:value:(head_groups lse)'")));
  EXPECT_THAT(RunCli("completion fish").out,
              AllOf(HasSubstr("-a attend"), HasSubstr(" -l mixing -r -f -a 'head_groups lse'")));
  const CliResult other = RunCli("completion tcsh");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("expected bash, zsh or fish"));
}

}  // namespace
}  // namespace hilbert_ring::client
