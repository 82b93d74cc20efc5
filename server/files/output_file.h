// An output that appears under its name only when it is whole.
//
//   ASSIGN_OR_RETURN(OutputFile out, OutputFile::Create(root, folder, {.path = "out.npy", ...}));
//   out.unfinished();   // where workers write, at out.offset() and behind
//   out.Commit();       // synced and renamed; else the destructor removes it
//
// The unfinished file lies in the same folder, so that it can be renamed. An excluded worker that
// still writes to it never writes to the committed file of a later try. The output gets the mode of
// the file that it replaces, and its owner and group if the system permits.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"
#include "server/files/data_root.h"

namespace hilbert_ring::server {

struct OutputFileOptions {
  std::string path;  // beneath the root
  std::string header;
  int64_t data_bytes = 0;
};

// Checks that an output can be made at the path, or replace the file there. FILE_NOT_FOUND,
// FILE_NOT_PERMITTED: of its folder, or only another user may read the file and could not read its
// replacement. Errors of OpenFile.
absl::Status CheckReplaceable(int root, const std::string& path);

class OutputFile {
 public:
  // Makes the file at its full size. root: of data_root.Reach(). `data_root` must outlive the file.
  // Errors of CheckReplaceable, FILE_NO_SPACE.
  static absl::StatusOr<OutputFile> Create(DataRoot& data_root, int root,
                                           const OutputFileOptions& options);
  OutputFile(OutputFile&& other) noexcept = default;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // removes an uncommitted file

  const std::string& unfinished() const { return unfinished_; }  // its path until Commit
  int64_t offset() const { return offset_; }                     // of the data
  int descriptor() const { return file_.number(); }
  const FileVersion& version() const { return version_; }  // after Create

  absl::Status Sync() const;

  // Call once. FILE_CHANGED if another process removed, replaced or resized the file.
  absl::Status Commit();

 private:
  OutputFile() = default;

  DataRoot* data_root_ = nullptr;  // lists its name
  std::string path_, unfinished_;
  Descriptor folder_, file_;
  FileVersion version_;
  int64_t offset_ = 0;
  bool committed_ = false;
};

}  // namespace hilbert_ring::server
