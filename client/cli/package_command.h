// The commands that are the Python package's: `hilbert-ring bench sweep --out figures` becomes
// `python3 -m hilbert_ring bench sweep --out figures`, which imports nothing of the current folder.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/cli/commands.h"

namespace hilbert_ring::cli {

// Lists them for --help and for completion. What stands behind one of them is the package's to
// read.
void AddPackageCommands(CLI::App& app);

// Where in argv such a command stands, or argc. Values of the app's options are passed over.
int PackageCommandAt(const CLI::App& app, int argc, char** argv);

// Becomes the package's program, with these words, the first of which is the command, and with the
// service's address and the caller's access as variables. The interpreter is the one that
// HILBERT_RING_PYTHON names, else python3 on PATH or in /usr/bin, whichever can import the package.
// Returns, an exit code, where none can.
int RunPackageCommand(const CLI::App& app, const GlobalOptions& global,
                      const std::vector<std::string>& words);

}  // namespace hilbert_ring::cli
