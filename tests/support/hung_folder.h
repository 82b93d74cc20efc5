// A folder whose file system never answers, as one of a server that is gone: whoever looks into it
// waits until it is destroyed.
//
//   const auto hung = HungFolder::Mount(folder / "hung");
//   if (!hung.ok()) GTEST_SKIP() << hung.status();   // who may mount nothing
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

class HungFolder {
 public:
  // Over a folder that is there, as EnterOwnMounts has it. FAILED_PRECONDITION where this process
  // may not, or the system has no FUSE.
  static absl::StatusOr<std::unique_ptr<HungFolder>> Mount(const std::string& path);
  // Those who wait get an error.
  ~HungFolder();
  HungFolder(const HungFolder&) = delete;
  HungFolder& operator=(const HungFolder&) = delete;

 private:
  HungFolder(std::string path, int device) : path_(std::move(path)), device_(device) {}

  const std::string path_;
  const int device_;  // FUSE's, which nobody reads
};

}  // namespace hilbert_ring::testing
