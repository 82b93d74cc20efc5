#include "server/process/settings_sources.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/nearest_name.h"
#include "engine/spec/watched_json.h"

namespace hilbert_ring::server {
namespace {

constexpr absl::string_view kPort = "_PORT";

bool IsServiceAddress(absl::string_view variable, absl::string_view value) {
  return absl::EndsWith(variable, kPort) &&
         (absl::StartsWith(value, "tcp://") || absl::StartsWith(value, "udp://") ||
          absl::StartsWith(value, "sctp://"));
}

bool IsOfService(absl::string_view variable, absl::string_view value) {
  if (IsServiceAddress(variable, value)) return true;
  for (const char* part : {"_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"}) {
    const size_t at = variable.find(part);
    if (at == variable.npos) continue;
    const std::string address = absl::StrCat(variable.substr(0, at), kPort);
    const char* const found = std::getenv(address.c_str());
    if (found != nullptr && IsServiceAddress(address, found)) return true;
  }
  return false;
}

size_t FindFlag(const std::string& message, const std::string& flag) {
  for (size_t at = message.find(flag); at != message.npos; at = message.find(flag, at + 1)) {
    const size_t end = at + flag.size();
    if (end == message.size()) return end;
    const char next = message[end];
    if (next != '-' && std::isalnum(static_cast<unsigned char>(next)) == 0) return end;
  }
  return message.npos;
}

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

std::string VariableOf(const std::string& flag) {
  std::string name = kVariablePrefix;
  for (const char c : flag) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

EnvironmentSettings ReadEnvironment(const std::vector<std::string>& flags, int argc,
                                    const char* const* argv) {
  EnvironmentSettings settings;
  for (const std::string& name : flags) {
    const std::string flag = "--" + name, variable = VariableOf(name);
    const char* const value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') continue;
    const bool given = std::any_of(argv + 1, argv + argc, [&flag](std::string_view argument) {
      return argument.substr(0, argument.find('=')) == flag;
    });
    if (given) continue;
    if (IsServiceAddress(variable, value)) {
      settings.warnings.push_back(
          absl::StrCat("environment variable ", variable, " is ", value,
                       ", the address of a Service of Kubernetes, and is ignored; "
                       "enableServiceLinks: false omits it"));
      continue;
    }
    settings.arguments.emplace(flag, value);
  }
  return settings;
}

std::string WithVariables(std::string message, const EnvironmentSettings& environment) {
  for (const auto& [flag, value] : environment.arguments) {
    const size_t end = FindFlag(message, flag);
    if (end == message.npos) continue;
    message.insert(end, absl::StrCat(" (", VariableOf(flag.substr(2)), ")"));
  }
  return message;
}

std::vector<std::string> UnknownVariables(const std::vector<std::string>& known) {
  std::vector<std::string> warnings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    const auto& [name, value] = variable;
    if (!absl::StartsWith(name, kVariablePrefix) || IsOfService(name, value) ||
        std::find(known.begin(), known.end(), name) != known.end()) {
      continue;
    }
    warnings.push_back(absl::StrCat("environment variable ", name, " is not one of the settings",
                                    NearestNameHint(name, known)));
  }
  return warnings;
}

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
