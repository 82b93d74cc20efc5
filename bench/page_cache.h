// Drops files from the system's page cache, so that jobs read them from disk.
//
//   if (LiesInMemory(folder)) ...       // a tmpfs: no disk
//   OrFail(DropPages("/srv/q.npy"));    // no page remains in memory
#pragma once

#include <string>

#include "absl/status/status.h"

namespace hilbert_ring::bench {

// Returns whether the folder's file system is in memory (tmpfs, ramfs); false without a folder.
bool LiesInMemory(const std::string& folder);

// Writes a file's pages to disk and drops them. FAILED_PRECONDITION: some stay, because the file
// lies in memory or is mapped. Other errors follow errno.
absl::Status DropPages(const std::string& path);

}  // namespace hilbert_ring::bench
