// A file's bytes in the address space, which can be lost while they are used: another process may
// shorten the file, its disk may fail or, where space is given out late, be full. The process then
// gets a SIGBUS.
//
//   CatchLostBytes();                                    // once, in main()
//   auto mapping = FileMapping::Map(fd, bytes, PROT_READ);
//   ... mapping->begin() ...                             // lost bytes read as zero
//   if (!mapping->Intact()) ...                          // before the result is trusted
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace hilbert_ring::client {

// Unmapped with the object.
class FileMapping {
 public:
  FileMapping() = default;

  // Keeps a descriptor of its own. The code follows errno; the message names no file.
  static absl::StatusOr<FileMapping> Map(int fd, int64_t bytes, int protection);

  FileMapping(FileMapping&& other) noexcept;
  FileMapping& operator=(FileMapping&& other) noexcept;
  ~FileMapping();

  std::byte* begin() const { return begin_; }
  int64_t bytes() const { return bytes_; }

  // False when bytes were lost as they were used, or the file is shorter by now.
  bool Intact() const;

 private:
  FileMapping(std::byte* begin, int64_t bytes, int fd);

  std::byte* begin_ = nullptr;
  int64_t bytes_ = 0;
  int fd_ = -1;
  int watched_ = -1;  // its place among the watched mappings; -1: there was none free
};

// From now on a lost byte of a FileMapping reads as zero, and what is written there is lost, in
// place of the process's end. A SIGBUS of any other cause ends it as before. For a process's
// main().
void CatchLostBytes();

}  // namespace hilbert_ring::client
