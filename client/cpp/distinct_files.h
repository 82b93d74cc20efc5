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

// INVALID_ARGUMENT: a path has a NUL, or an output or its partial file (PendingFile) is also an
// input or another output. The message has both names. Device and inode identify an existing file,
// whatever its spelling or links. Folder and name identify a file that does not exist yet, after
// its links are followed. Opens nothing.
absl::Status CheckDistinct(const std::vector<NamedFile>& inputs,
                           const std::vector<NamedFile>& outputs);

}  // namespace hilbert_ring::client
