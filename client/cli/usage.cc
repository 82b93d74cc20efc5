#include "client/cli/usage.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/spec/nearest_name.h"
#include "wire/flag_values.h"

namespace hilbert_ring::cli {
namespace {

constexpr char kMore[] = "; hilbert-ring --help and hilbert-ring COMMAND --help list the options";

std::vector<std::string> Commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

void AddOptions(const CLI::App& app, std::vector<std::string>& options) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
}

void AddSwitches(const CLI::App& app, std::set<std::string>& switches) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_expected_max() > 0) continue;
    for (const std::string& name : option->get_lnames()) {
      switches.insert("--" + name);
    }
  }
  for (const CLI::App* command : app.get_subcommands(nullptr)) AddSwitches(*command, switches);
}

constexpr char kPrefix[] = "HILBERT_RING_";
constexpr size_t kShortest = 5;  // of a compared name; PORT, a worker's setting, would be near CERT

class Help : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    // CLI11 lists a flag that sets false as "--no-flag{false}".
    return absl::StrReplaceAll(CLI::Formatter::make_option_name(option, is_positional),
                               {{"{false}", ""}});
  }
};

}  // namespace

void RequireExactValues(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands(nullptr)) RequireExactValues(*command);
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type == "N" || type == "N,...") {
      option->transform(CLI::Validator(wire::WrongWholeNumber, ""));
    } else if (type == "X" || type == "SECONDS") {
      option->check(CLI::Validator(wire::WrongNumber, ""));
    }
  }
}

absl::Status CheckValues(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::set<std::string> switches;
  AddSwitches(app, switches);
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (name.starts_with("--") && equals + 1 == argument.size()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": has no value", kMore));
    }
    if (equals == argument.npos || !switches.contains(name)) continue;
    const std::string wrong = wire::WrongTruthValue(argument.substr(equals + 1));
    if (!wrong.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", wrong, kMore));
  }
  return absl::OkStatus();
}

std::shared_ptr<CLI::FormatterBase> HelpFormatter() { return std::make_shared<Help>(); }

absl::Status UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  std::vector<std::string> options;
  AddOptions(app, options);
  for (const CLI::App* command : parsed) AddOptions(*command, options);
  std::vector<std::string> unexpected;
  for (const std::string& argument : app.remaining(true)) {
    if (argument.starts_with("-")) {
      const std::string name = argument.substr(0, argument.find('='));
      return absl::InvalidArgumentError(
          absl::StrCat("unknown option ", name, NearestNameHint(name, options), kMore));
    }
    if (parsed.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown command ", argument, NearestNameHint(argument, Commands(app)), kMore));
    }
    unexpected.push_back(argument);
  }
  if (parsed.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no command is given: ", absl::StrJoin(Commands(app), ", "), kMore));
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !unexpected.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(unexpected.size() == 1 ? "unexpected argument " : "unexpected arguments ",
                     absl::StrJoin(unexpected, ", "), kMore));
  }
  return absl::InvalidArgumentError(absl::StrCat(error.what(), kMore));
}

std::vector<std::string> VariableWarnings(const CLI::App& app, char** environment) {
  std::vector<std::string> known = {"TOKEN", "INSECURE", "PYTHON", "BIN_DIR"};
  for (const CLI::Option* option : app.get_options()) {
    const std::string& name = option->get_envname();
    if (name.starts_with(kPrefix)) known.push_back(name.substr(sizeof(kPrefix) - 1));
  }
  std::vector<std::string> warnings;
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    if (!variable.starts_with(kPrefix)) continue;
    const std::string name(variable.substr(0, variable.find('=')).substr(sizeof(kPrefix) - 1));
    if (name.size() < kShortest || std::ranges::find(known, name) != known.end()) continue;
    const std::string nearest = NearestName(name, known);
    // A known name with a prefix is a setting of the service: AUTH_TOKEN_FILE.
    if (nearest.empty() || name.ends_with(absl::StrCat("_", nearest))) continue;
    warnings.push_back(absl::StrCat("environment variable ", kPrefix, name,
                                    " is not known; the nearest known one is ", kPrefix, nearest));
  }
  return warnings;
}

}  // namespace hilbert_ring::cli
