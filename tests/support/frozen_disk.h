// A file system of its own (ext4), which a test freezes: who writes to it then waits until it is
// thawed, and no signal ends that wait.
//
//   const auto disk = FrozenDisk::Make(folder / "disk");
//   if (!disk.ok()) GTEST_SKIP() << disk.status();   // who may mount nothing
//   (*disk)->Freeze();
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

class FrozenDisk {
 public:
  // Over a folder that is there, in a file beside it, as EnterOwnMounts has it. FAILED_PRECONDITION
  // where this process may not, or the system has no loop devices or no mkfs.ext4.
  static absl::StatusOr<std::unique_ptr<FrozenDisk>> Make(const std::string& path);
  // Thaws it, and removes it.
  ~FrozenDisk();
  FrozenDisk(const FrozenDisk&) = delete;
  FrozenDisk& operator=(const FrozenDisk&) = delete;

  bool Freeze();
  bool Thaw();

 private:
  explicit FrozenDisk(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

}  // namespace hilbert_ring::testing
