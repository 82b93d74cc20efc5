#include "client/cli/file_flags.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/output_place.h"

namespace hilbert_ring::cli {
namespace {

absl::Status CheckStdout(const GlobalOptions& global,
                         const std::vector<client::NamedFile>& outputs) {
  std::string first;
  for (const client::NamedFile& output : outputs) {
    if (!client::IsStdout(output.path)) continue;
    const std::string text = absl::StrCat(output.name, " ", output.path);
    if (global.format == OutputFormat::kJson) {
      return absl::InvalidArgumentError(
          absl::StrCat(text, ": stdout has what --json prints; omit one of them"));
    }
    if (!first.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(text, ": stdout is taken by ", first, "; give one of them a file"));
    }
    first = text;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFiles(const GlobalOptions& global, std::vector<client::NamedFile> inputs,
                        const std::vector<client::NamedFile>& outputs) {
  if (absl::Status status = CheckStdout(global, outputs); !status.ok()) return status;
  const client::Access& access = global.access;
  inputs.insert(inputs.end(), {{"--token-file", access.token_file},
                               {"--ca", access.ca},
                               {"--cert", access.cert},
                               {"--key", access.key}});
  return client::CheckDistinct(inputs, outputs);
}

bool TakeStdout(const std::vector<std::string>& paths) {
  return std::ranges::any_of(paths, client::IsStdout);
}

}  // namespace hilbert_ring::cli
