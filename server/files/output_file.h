// An output that appears under its name when it is whole, and not before.
//
//   ASSIGN_OR_RETURN(OutputFile out, OutputFile::Create(root, folder, {.path = "out.npy", ...}));
//   out.unfinished();   // where workers write, at out.offset() and behind
//   out.Commit();       // synced, and renamed; else it is removed
//
// It lies in the folder of its name from the start, so that the name can be given to it. Who opened
// it and was given up may go on to write: what is renamed is another file then. It has the mode of
// the file that it replaces, and its owner and group where the system lets it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/files/data_root.h"
#include "server/files/descriptor.h"

namespace hilbert_ring::server {

struct OutputFileOptions {
  std::string path;    // beneath the root
  std::string header;  // what it begins with
  int64_t data_bytes = 0;
};

// What stands at the path, where something does, can be replaced: as of OpenFile.
// FILE_NOT_FOUND, FILE_NOT_PERMITTED: of its folder. FILE_NOT_PERMITTED: another user alone may
// read the file, who could not read the one that takes its place.
absl::Status CheckReplaceable(int root, const std::string& path);

class OutputFile {
 public:
  // root: reached of data_root, which outlives it. Full size from the start. Errors of
  // CheckReplaceable; FILE_NO_SPACE, naming the bytes that are wanted and free.
  static absl::StatusOr<OutputFile> Create(DataRoot& data_root, int root,
                                           const OutputFileOptions& options);
  OutputFile(OutputFile&& other) noexcept = default;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // removes what was not committed

  const std::string& unfinished() const { return unfinished_; }  // its path until then
  int64_t offset() const { return offset_; }                     // of the data
  int descriptor() const { return file_.number(); }
  const FileVersion& version() const { return version_; }  // at first

  // Brings what is written to the disk. Errors of FileError.
  absl::Status Sync() const;

  // Call once. FILE_CHANGED where somebody has removed, replaced, shortened or lengthened it.
  absl::Status Commit();

 private:
  OutputFile() = default;

  DataRoot* data_root_ = nullptr;  // that has its name
  std::string path_, unfinished_;
  Descriptor folder_, file_;
  FileVersion version_;
  int64_t offset_ = 0;
  bool committed_ = false;
};

}  // namespace hilbert_ring::server
