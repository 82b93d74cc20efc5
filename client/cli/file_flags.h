// Checks the input and output files of a command by their flags, before any is touched.
//
//   RETURN_IF_ERROR(CheckFiles(global, {{"--q", command.q}}, {{"--out", command.out}}));
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "client/cli/commands.h"
#include "client/cpp/distinct_files.h"

namespace hilbert_ring::cli {

// INVALID_ARGUMENT: an output would replace an input, another output, or a file of the caller's
// identity. Files of the identity are --token-file, --ca, --cert and --key, or their variables.
// Also INVALID_ARGUMENT: two results would go to stdout, such as an output and --json.
absl::Status CheckFiles(const GlobalOptions& global, std::vector<client::NamedFile> inputs,
                        const std::vector<client::NamedFile>& outputs);

// Returns whether any path is stdout. The command then prints no other result there.
bool TakeStdout(const std::vector<std::string>& paths);

}  // namespace hilbert_ring::cli
