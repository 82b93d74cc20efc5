// Commands of the Python package: `hilbert-ring bench sweep` becomes `python3 -m hilbert_ring bench
// sweep`. It imports nothing from the current folder.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/cli/commands.h"

namespace hilbert_ring::cli {

// Lists them for --help and completion. The package parses their arguments.
void AddPackageCommands(CLI::App& app);

// Returns the index of such a command in argv, or argc. Skips values of the app's options.
int PackageCommandAt(const CLI::App& app, int argc, char** argv);

// Becomes the package's program. words: the command and its arguments. Variables carry the
// service's address and the caller's access. The interpreter is that of HILBERT_RING_PYTHON,
// otherwise python3 on PATH or in /usr/bin, the first that can import the package. Returns an exit
// code if all fail.
int RunPackageCommand(const CLI::App& app, const GlobalOptions& global,
                      const std::vector<std::string>& words);

// Starts a program that reads no input and writes only errors, to the descriptor `errors`. Returns
// an errno, 0 if it has started.
int Spawn(const std::string& program, std::vector<std::string> words, int errors, pid_t& child);

}  // namespace hilbert_ring::cli
