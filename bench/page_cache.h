// What the system keeps of files in memory, for jobs that shall read them from their disk.
//
//   if (LiesInMemory(folder)) ...       // there is no disk to read them from
//   OrFail(DropPages("/srv/q.npy"));    // no page of it is in memory now
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hilbert_ring::bench {

// Whether files of this folder have no other place than memory (tmpfs, ramfs). False where there is
// no such folder.
bool LiesInMemory(const std::string& folder);

// Writes a file's pages to its disk and drops them from memory. FAILED_PRECONDITION: some stay, for
// the file lies in memory, or somebody has mapped it; other errors follow errno.
absl::Status DropPages(const std::string& path);

}  // namespace hilbert_ring::bench
