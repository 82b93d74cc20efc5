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
// identity (--token-file, --ca, --cert, --key, or its variable). Also if two results, such as that
// of --json, would go to stdout.
absl::Status CheckFiles(const GlobalOptions& global, std::vector<client::NamedFile> inputs,
                        const std::vector<client::NamedFile>& outputs);

// Returns whether a path is stdout, so that nothing else may be printed there.
bool TakeStdout(const std::vector<std::string>& paths);

}  // namespace hilbert_ring::cli
