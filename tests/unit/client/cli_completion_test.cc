// What a tab completes in the shells that have a script.
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool IsInstalled(const std::string& program) {
  return std::system(absl::StrCat("command -v ", program, " > /dev/null").c_str()) == 0;
}

// What a command prints, which must end well.
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
  EXPECT_EQ(completions("at", 1), "attend attend-many\n");
  EXPECT_EQ(completions("--ser", 1), "--server --server-name\n");
  EXPECT_EQ(completions("attend --outa", 2), "--outage-timeout\n");
  EXPECT_EQ(completions("--json attend --rep", 3), "--report\n");
  EXPECT_EQ(completions("plan --outa", 2), "\n");
  EXPECT_EQ(completions("completion z", 2), "zsh\n");
  EXPECT_EQ(completions("--json ben", 2), "bench\n");
  EXPECT_EQ(completions("bench sw", 2), "sweep\n");
  EXPECT_EQ(completions("draw p", 2), "pattern plan\n");
  EXPECT_EQ(completions("attend --mixing l", 3), "lse\n");
  EXPECT_EQ(completions("plan --curve \"\"", 3), "hilbert morton auto none\n");
  EXPECT_EQ(completions("plan --spec p", 3), "\n");  // a file, not a command
  EXPECT_EQ(completions("attend --no-c", 2), "--no-causal\n");
  EXPECT_EQ(completions("attend --mixing = l", 4), "lse\n");  // as bash takes --mixing=l apart
  EXPECT_EQ(completions("attend --mixing =", 3), "head_groups lse\n");
  EXPECT_EQ(completions("attend --mixing=l", 2), "--mixing=lse\n");
  EXPECT_EQ(completions("attend --he", 2), "--help --heads --head-dim\n");
  EXPECT_EQ(completions("encode --layers \"\"", 3), "all last\n");
  EXPECT_EQ(completions("draw pattern --se", 3),
            "--server --server-name --segments --sequence-lengths\n");
  EXPECT_EQ(completions("draw pattern --mixing l", 4), "lse\n");
  EXPECT_EQ(completions("bench sweep --rou", 3), "--rounds\n");
}

// Of an interactive shell in a terminal of its own: lines with a tab behind them are entered.
TEST(CliCompletion, AZshCompletesCommandsOptionsAndValues) {
  if (!IsInstalled("zsh")) GTEST_SKIP() << "zsh is not installed";
  const TestFiles files;
  const std::string completion = files.Write("completion", RunCli("completion zsh").out);
  const auto entered = [&](const std::string& line) {
    const std::string script = files.Write(
        "script",
        absl::StrCat("zmodload zsh/zpty\nzpty shell zsh -f -i\n",
                     "zpty -w shell \"PS1=; autoload -Uz compinit; compinit -u -D; source ",
                     completion,
                     "; hilbert-ring() { print -r -- \\\"<\\$*>\\\" }; echo rea''dy\"\n",
                     "zpty -r shell line '*ready*'\n", "zpty -w shell $'hilbert-ring ", line,
                     "\\t'\nzpty -r shell line '*<*>*'\n",
                     "print -r -- ${${line##*<}%%>*}\nzpty -d shell\n"));
    return OutputOf(absl::StrCat("timeout 60 zsh -f ", script));
  };
  EXPECT_EQ(entered("canc"), "cancel\n");
  EXPECT_EQ(entered("completion z"), "completion zsh\n");
  EXPECT_EQ(entered("attend --outa"), "attend --outage-timeout\n");
  EXPECT_EQ(entered("plan --mixing l"), "plan --mixing lse\n");
  EXPECT_EQ(entered("plan --mixing=l"), "plan --mixing=lse\n");
  EXPECT_EQ(entered("--json encode --layers al"), "--json encode --layers all\n");
}

TEST(CliCompletion, AFishCompletesCommandsOptionsAndValues) {
  if (!IsInstalled("fish")) GTEST_SKIP() << "fish is not installed";
  const TestFiles files;
  const std::string completion = files.Write("completion", RunCli("completion fish").out);
  const auto completions = [&](const std::string& line) {
    return OutputOf(absl::StrCat("timeout 60 fish --no-config -c 'source ", completion,
                                 "; complete -C \"hilbert-ring ", line, "\" | cut -f 1'"));
  };
  EXPECT_EQ(completions("att"), "attend\nattend-many\n");
  EXPECT_EQ(completions("completion z"), "zsh\n");
  EXPECT_EQ(completions("attend --outa"), "--outage-timeout\n");
  EXPECT_EQ(completions("plan --mixing "), "head_groups\nlse\n");
  EXPECT_EQ(completions("plan --mixing=l"), "--mixing=lse\n");
  EXPECT_EQ(completions("--json encode --layers "), "all\nlast\n");
}

TEST(CliCompletion, EachShellHasItsScript) {
  EXPECT_THAT(RunCli("completion zsh").out,
              AllOf(HasSubstr("#compdef hilbert-ring"), HasSubstr("'attend:"),
                    HasSubstr("'--outage-timeout=["), HasSubstr("(bash zsh fish)"),
                    HasSubstr("]:value:(head_groups lse)'"), HasSubstr("without TLS]' '--json")));
  EXPECT_THAT(RunCli("completion fish").out,
              AllOf(HasSubstr("-a attend"),
                    HasSubstr("__fish_seen_subcommand_from attend' -l "
                              "outage-timeout -r"),
                    HasSubstr(" -l mixing -r -f -a 'head_groups lse'")));
  const CliResult other = RunCli("completion tcsh");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("expected bash, zsh or fish"));
}

}  // namespace
}  // namespace hilbert_ring::client
