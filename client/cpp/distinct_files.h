// Detects paths of a command line that are one file, so that no output replaces an input or another
// output.
//
//   CheckDistinct({{"--q", "q.npy"}, {"--spec", "job.json"}}, {{"--out", "out.npy"}});
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hilbert_ring::client {

struct NamedFile {
  std::string name;  // in messages: "--q"
  std::string path;  // empty: not given; "-": stdin or stdout
};

// INVALID_ARGUMENT, with both names: an output or its partial file (PendingFile) is an input or
// another output; also a path with a NUL. Device and inode identify an existing file, folder and
// name a missing one, after its links. Opens nothing.
absl::Status CheckDistinct(const std::vector<NamedFile>& inputs,
                           const std::vector<NamedFile>& outputs);

}  // namespace hilbert_ring::client
