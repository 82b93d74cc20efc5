// Where an output that is given by its path lies. A symbolic link stays and its target is what is
// written, whether that is there yet or not; pipes, devices and descriptors of this process are
// written where they are, and never replaced.
//
//   auto place = FindOutput("latest.npy");   // a link to runs/7.npy
//   place->path;                             // "runs/7.npy"
//   FindOutput("/dev/stdout")->descriptor;   // 1
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::client {

struct OutputPlace {
  std::string path;       // no symbolic link; as it was given where descriptor is one
  int descriptor = -1;    // of this process, by "-" or a link such as /dev/stdout; -1: none
  bool in_place = false;  // no regular file: a new one must not take its place
  int mode = -1;          // permissions of the file whose place a new one takes; -1: none is there
};

// Opens nothing. FAILED_PRECONDITION: links lead to each other. INVALID_ARGUMENT: the system takes
// no name or path of this length.
absl::StatusOr<OutputPlace> FindOutput(const std::string& path);

// Whether this is written to stdout: "-", or a path that leads there.
bool IsStdout(const std::string& path);

}  // namespace hilbert_ring::client
