// What a command line that cannot be read says, and completes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

namespace hilbert_ring::cli {

// Takes decimal numbers alone for options of numbers ("N", "X" and "SECONDS" in the help): CLI11
// also takes octal and hexadecimal digits. After all options were added.
void RequireExactValues(CLI::App& app);

// INVALID_ARGUMENT: an argument --option= without a value, for which CLI11 would take the next
// argument or true; --switch=VALUE that is neither true nor false: CLI11 would take 1x for
// true, and throws at others.
absl::Status CheckValues(const CLI::App& app, const std::vector<std::string>& arguments);

// INVALID_ARGUMENT: the error of app.parse; unknown commands and options are named with
// the nearest known ones.
absl::Status UsageError(const CLI::App& app, const CLI::ParseError& error);

// --help, without CLI11's marks on flags that come in two forms.
std::shared_ptr<CLI::FormatterBase> HelpFormatter();

// Of variables that are nearly one of the command line's, and are read by nobody. Those of the
// service's settings, which may stand in the same environment, are not near.
std::vector<std::string> VariableWarnings(const CLI::App& app, char** environment);

// A script that completes commands, options and their values: bash, zsh or fish.
absl::StatusOr<std::string> CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace hilbert_ring::cli
