#include "server/process/settings_environment.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/spec/nearest_name.h"

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

}  // namespace hilbert_ring::server
