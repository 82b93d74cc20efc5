#include <map>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/client/run_cli.h"
#include "tests/unit/client/test_files.h"

namespace hilbert_ring::client {
namespace {

// Returns flags of --help with their defaults; "" without one.
std::map<std::string, std::string> FlagsOf(const std::string& program) {
  const CliResult help = RunShell(absl::StrCat(program, " --help"));
  EXPECT_EQ(help.code, 0) << help.err;
  std::map<std::string, std::string> flags;
  const std::regex remarks(R"(\[.*\]|\{.*\})");  // lists of values
  const std::regex line(R"(  (--[a-z-]+)( .*?)?(=(\S+))?(  .*)?)");
  for (const auto text : absl::StrSplit(help.out, '\n')) {
    const std::string whole = std::regex_replace(std::string(text), remarks, "");
    std::smatch match;
    if (std::regex_match(whole, match, line)) flags[match[1]] = match[4];
  }
  for (const char* no_setting : {"--help", "--version", "--config"}) flags.erase(no_setting);
  EXPECT_GT(flags.size(), 10u) << program;
  return flags;
}

// Compares the page's tables, from a heading up to `end`, with the flags and defaults of --help.
void Compare(std::map<std::string, std::string> said, const std::string& heading,
             const std::string& end) {
  const std::string page = ReadFile(HILBERT_RING_SETTINGS_PAGE);
  const size_t begin = page.find(absl::StrCat("\n", heading, "\n"));
  ASSERT_NE(begin, std::string::npos) << heading;
  const std::string part = page.substr(begin, page.find(absl::StrCat("\n", end, "\n")) - begin);
  const std::regex flag(R"(`(--[a-z-]+)`)");
  for (const auto row : absl::StrSplit(part, '\n')) {
    std::vector<std::string> cells = absl::StrSplit(row, '|');  // the first is empty
    if (cells.size() < 4) continue;
    absl::StripAsciiWhitespace(&cells[2]);
    const std::vector<std::string> defaults = absl::StrSplit(cells[2], ", ");
    const std::vector<std::string> names(
        std::sregex_token_iterator(cells[1].begin(), cells[1].end(), flag, 1), {});
    for (size_t i = 0; i < names.size(); ++i) {
      const auto found = said.find(names[i]);
      ASSERT_NE(found, said.end()) << names[i] << " is no flag, or is there twice";
      // Sizes have no default in --help; those of switches are numbers there.
      if (!found->second.empty() && defaults.size() == names.size() && defaults[i] != "true") {
        EXPECT_EQ(found->second, defaults[i]) << names[i];
      }
      said.erase(found);
    }
  }
  for (const auto& [name, by_default] : said) ADD_FAILURE() << name << " is not on the page";
}

TEST(SettingsPage, ListsTheCoordinatorsFlags) {
  Compare(FlagsOf(HILBERT_RING_COORDINATOR), "## The coordinator", "## A worker");
}

TEST(SettingsPage, ListsTheWorkersFlags) {
  Compare(FlagsOf(HILBERT_RING_WORKER), "## A worker", "## The command line");
}

}  // namespace
}  // namespace hilbert_ring::client
