// A folder whose file system never answers, as of a server that is gone: readers wait until it is
// destroyed.
//
//   const auto hung = HungFolder::Mount(folder / "hung");
//   if (!hung.ok()) GTEST_SKIP() << hung.status();
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

class HungFolder {
 public:
  // Mounts over an existing folder (own_mounts.h). FAILED_PRECONDITION without the rights or FUSE.
  static absl::StatusOr<std::unique_ptr<HungFolder>> Mount(const std::string& path);
  ~HungFolder();
  HungFolder(const HungFolder&) = delete;
  HungFolder& operator=(const HungFolder&) = delete;

 private:
  HungFolder(std::string path, int device) : path_(std::move(path)), device_(device) {}

  const std::string path_;
  const int device_;  // FUSE's, never read
};

}  // namespace hilbert_ring::testing
