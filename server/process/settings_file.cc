#include "server/process/settings_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/watched_json.h"

namespace hilbert_ring::server {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kBlanks = " \t\r";

absl::Status BadLine(const std::string& message) { return absl::InvalidArgumentError(message); }

std::string_view Stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

// The '#' of a comment, which is behind a blank, or npos.
size_t CommentIn(std::string_view text) {
  size_t at = text.find('#');
  while (at != text.npos && (at == 0 || kBlanks.find(text[at - 1]) == kBlanks.npos)) {
    at = text.find('#', at + 1);
  }
  return at;
}

absl::StatusOr<std::string_view> ValueOf(const std::string& key, std::string_view text) {
  const std::string_view whole = Stripped(text);
  if (whole.starts_with('"') || whole.starts_with('\'')) {
    const size_t end = whole.find(whole.front(), 1);
    const std::string_view rest = end == whole.npos ? "'" : whole.substr(end + 1);
    if (!Stripped(rest.substr(0, CommentIn(rest))).empty()) {
      return BadLine(absl::StrCat("key ", key, " is ", Quoted(whole), ", must end with its quote"));
    }
    return whole.substr(1, end - 1);
  }
  const std::string_view value = Stripped(text.substr(0, CommentIn(text)));
  const bool open_list = value.starts_with('[') && value.find(']') == value.npos;
  return open_list || value.find_first_not_of("[], \t") == value.npos ? "" : value;
}

absl::StatusOr<SettingLine> ReadLine(std::string_view line, int number) {
  const auto refused = [&](const char* why) {
    return BadLine(absl::StrCat("line ", number, " is ", Quoted(line), ", ", why));
  };
  const auto is_control = [](char c) { return (c >= 0 && c < ' ' && c != '\t') || c == 0x7f; };
  if (std::ranges::any_of(line, is_control)) return refused("has a control character");
  if (line.starts_with('[') && line.ends_with(']')) {
    return BadLine(
        absl::StrCat("section ", std::string(line), " is given, must be lines of key=value"));
  }
  const size_t equals = line.find('=');
  const std::string key(Stripped(line.substr(0, equals)));
  if (equals == line.npos || key.empty()) return refused("must be key=value");
  ASSIGN_OR_RETURN(const std::string_view value, ValueOf(key, line.substr(equals + 1)));
  if (value.empty()) return BadLine(absl::StrCat("key ", key, " has no value"));
  return SettingLine{.key = key, .value = std::string(value)};
}

}  // namespace

absl::StatusOr<std::vector<SettingLine>> ParseSettingsFile(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<SettingLine> lines;
  std::set<std::string> keys;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Stripped(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    ASSIGN_OR_RETURN(SettingLine setting, ReadLine(line, number));
    if (!keys.insert(setting.key).second) {
      return BadLine(absl::StrCat("key ", setting.key, " has several values"));
    }
    lines.push_back(std::move(setting));
  }
  return lines;
}

}  // namespace hilbert_ring::server
