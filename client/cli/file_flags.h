// The files that a command reads and those that it writes, by their flags, checked before any is
// touched.
//
//   RETURN_IF_ERROR(CheckFiles(global, {{"--q", command.q}}, {{"--out", command.out}}));
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "client/cli/commands.h"
#include "client/cpp/distinct_files.h"

namespace hilbert_ring::cli {

// INVALID_ARGUMENT: an output would replace an input, a file with which the caller shows who it is
// (--token-file, --ca, --cert, --key, or its variable), or another output; or two things would be
// written to stdout, one of which may be what --json prints.
absl::Status CheckFiles(const GlobalOptions& global, std::vector<client::NamedFile> inputs,
                        const std::vector<client::NamedFile>& outputs);

// Whether one of these paths is stdout, so that nothing else may be printed there.
bool TakeStdout(const std::vector<std::string>& paths);

}  // namespace hilbert_ring::cli
