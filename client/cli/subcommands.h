// The commands of `hilbert-ring`: each owns its options and its run.
#pragma once

#include <functional>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/cli/commands.h"

namespace hilbert_ring::cli {

struct Subcommand {
  const CLI::App* app = nullptr;
  std::function<int(const GlobalOptions& global)> run;  // after parsing; returns the exit code
  std::function<bool()> calls = [] { return true; };    // whether it calls the service
};

// Adds all commands except those of the Python package. app must outlive them.
std::vector<Subcommand> AddSubcommands(CLI::App& app);

int RunVersion(const GlobalOptions& global);

}  // namespace hilbert_ring::cli
