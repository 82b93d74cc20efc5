// Finds the place of an output by its path. A symbolic link stays, and its target is written even
// if missing. Pipes, devices and descriptors of this process are written in place, and never
// replaced.
//
//   auto place = FindOutput("latest.npy");   // a link to runs/7.npy
//   place->path;                             // "runs/7.npy"
//   FindOutput("/dev/stdout")->descriptor;   // 1
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::client {

struct OutputPlace {
  std::string path;  // without symbolic links; unchanged with a descriptor
  int descriptor =
      -1;  // of this process, by "-" or a link such as /dev/stdout; -1: not a descriptor
  bool in_place = false;  // not a regular file: a new file must not replace it
  int mode = -1;          // permissions of the replaced file; -1: no file is there
};

// Opens nothing. FAILED_PRECONDITION: a cycle of links. INVALID_ARGUMENT: too long for the system.
absl::StatusOr<OutputPlace> FindOutput(const std::string& path);

bool IsStdout(const std::string& path);

}  // namespace hilbert_ring::client
