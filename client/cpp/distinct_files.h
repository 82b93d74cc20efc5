// Which paths of a command line are one file, so that no output replaces an input or another
// output.
//
//   CheckDistinct({{"--q", "q.npy"}, {"--spec", "job.json"}}, {{"--out", "out.npy"}});
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hilbert_ring::client {

struct NamedFile {
  std::string name;  // as a message says it: "--q"
  std::string path;  // empty: not given. "-": what the process reads from, or its stdout
};

// INVALID_ARGUMENT: a path with a NUL; and, naming both, when an output, or the file under which it
// is written at first (PendingFile), is an input or another output. Files are compared by device
// and inode, so that other spellings, symbolic and hard links are found; those that are not there
// yet by folder and name, of a link by its target's. Opens nothing.
absl::Status CheckDistinct(const std::vector<NamedFile>& inputs,
                           const std::vector<NamedFile>& outputs);

}  // namespace hilbert_ring::client
