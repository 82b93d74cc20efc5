// docs/settings.md against what the programs say of themselves by --help.
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

// Flags of --help with their defaults; empty where none is shown.
std::map<std::string, std::string> FlagsOf(const std::string& program) {
  const CliResult help = RunShell(absl::StrCat(program, " --help"));
  EXPECT_EQ(help.code, 0) << help.err;
  std::map<std::string, std::string> flags;
  const std::regex remarks(R"(\[.*\]|\{.*\})");  // on what values there are
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

// Flags of a part of the page, from a heading up to the next of `end`, with their defaults.
std::map<std::string, std::string> FlagsOnThePage(const std::string& heading,
                                                  const std::string& end) {
  const std::string page = ReadFile(HILBERT_RING_SETTINGS_PAGE);
  const size_t begin = page.find(absl::StrCat("\n", heading, "\n"));
  EXPECT_NE(begin, std::string::npos) << heading;
  const std::string part = page.substr(begin, page.find(absl::StrCat("\n", end, "\n")) - begin);
  std::map<std::string, std::string> flags;
  const std::regex flag(R"(`(--[a-z-]+)`)");
  for (const auto row : absl::StrSplit(part, '\n')) {
    std::vector<std::string> cells = absl::StrSplit(row, '|');  // the first is empty
    if (cells.size() < 4) continue;
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    std::vector<std::string> names;
    for (auto at = std::sregex_iterator(cells[1].begin(), cells[1].end(), flag);
         at != std::sregex_iterator(); ++at) {
      names.push_back((*at)[1]);
    }
    const std::vector<std::string> defaults = absl::StrSplit(cells[2], ", ");
    for (size_t i = 0; i < names.size(); ++i) {
      flags[names[i]] = defaults.size() == names.size() ? defaults[i] : "";
    }
  }
  return flags;
}

void Compare(const std::map<std::string, std::string>& said,
             const std::map<std::string, std::string>& written) {
  for (const auto& [flag, by_default] : said) {
    const auto row = written.find(flag);
    ASSERT_NE(row, written.end()) << flag << " is not on the page";
    // Sizes have no default in --help; those of switches are numbers there.
    if (by_default.empty() || row->second == "true" || row->second.empty()) continue;
    EXPECT_EQ(row->second, by_default) << flag;
  }
  for (const auto& [flag, by_default] : written) {
    EXPECT_TRUE(said.contains(flag)) << flag << " is no flag";
  }
}

TEST(SettingsPage, ListsTheCoordinatorsFlags) {
  Compare(FlagsOf(HILBERT_RING_COORDINATOR), FlagsOnThePage("## The coordinator", "## A worker"));
}

TEST(SettingsPage, ListsTheWorkersFlags) {
  Compare(FlagsOf(HILBERT_RING_WORKER), FlagsOnThePage("## A worker", "## The command line"));
}

}  // namespace
}  // namespace hilbert_ring::client
