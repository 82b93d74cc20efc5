#include "client/cli/usage.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/spec/nearest_name.h"

namespace hilbert_ring::cli {
namespace {

constexpr char kMore[] = "; hilbert-ring --help and hilbert-ring COMMAND --help tell more";

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

class Help : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    // A flag that sets false is listed as "--no-flag{false}".
    return absl::StrReplaceAll(CLI::Formatter::make_option_name(option, is_positional),
                               {{"{false}", ""}});
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> HelpFormatter() { return std::make_shared<Help>(); }

absl::Status UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  std::vector<std::string> options;
  AddOptions(app, options);
  for (const CLI::App* command : parsed) AddOptions(*command, options);
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
  }
  if (parsed.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no command is given: ", absl::StrJoin(Commands(app), ", "), kMore));
  }
  return absl::InvalidArgumentError(absl::StrCat(error.what(), kMore));
}

}  // namespace hilbert_ring::cli
