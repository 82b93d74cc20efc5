// Errors and completion of the command line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

namespace hilbert_ring::cli {

// Makes options of numbers ("N", "X" and "SECONDS" in the help) accept only decimal numbers: CLI11
// also accepts octal and hexadecimal digits. Call it after all options were added.
void RequireExactValues(CLI::App& app);

// INVALID_ARGUMENT: an argument --option= without a value, where CLI11 would use the next argument
// or true; or --switch=VALUE with another value than true and false, where CLI11 would use 1x as
// true, and throw at others.
absl::Status CheckValues(const CLI::App& app, const std::vector<std::string>& arguments);

// INVALID_ARGUMENT: the error of app.parse. Unknown commands and options come with the nearest
// known ones.
absl::Status UsageError(const CLI::App& app, const CLI::ParseError& error);

// Formats --help without CLI11's marks on flags of two forms.
std::shared_ptr<CLI::FormatterBase> HelpFormatter();

// Warns of variables that resemble the command line's but are not read. The service's settings,
// which may be in the same environment, do not count.
std::vector<std::string> VariableWarnings(const CLI::App& app, char** environment);

// Returns a script that completes commands, options and their values: bash, zsh or fish.
absl::StatusOr<std::string> CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace hilbert_ring::cli
