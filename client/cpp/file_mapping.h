// A file's bytes in the address space. They can be lost during use: another process shortens the
// file, its disk fails, or a disk that allocates late is full. The process then gets a SIGBUS.
//
//   CatchLostBytes();                                    // once, in main()
//   auto mapping = FileMapping::Map(fd, bytes, PROT_READ);
//   ... (*mapping)->begin() ...                           // lost bytes read as zero
//   if (!(*mapping)->Intact()) ...                          // before the result is used
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"

namespace hilbert_ring::client {

class FileMapping {
 public:
  // Keeps a descriptor of its own. The code follows errno; the message has no path.
  static absl::StatusOr<std::unique_ptr<FileMapping>> Map(int fd, int64_t bytes, int protection);
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;
  ~FileMapping();

  std::byte* begin() const { return begin_; }
  int64_t bytes() const { return bytes_; }

  // Returns false if bytes were lost during use, or the file is shorter now.
  bool Intact() const;

 private:
  FileMapping(std::byte* begin, int64_t bytes, Descriptor file);

  std::byte* const begin_;
  const int64_t bytes_;
  const Descriptor file_;
  const int watched_;  // place among the watched mappings; -1: all were taken
};

// Makes a lost byte of a FileMapping read as zero, and drops writes to it, instead of ending the
// process. A SIGBUS of another cause ends the process as before. Call it in main().
void CatchLostBytes();

}  // namespace hilbert_ring::client
