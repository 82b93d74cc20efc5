// The folder of files that jobs name (--data-root), as the coordinator has it. A mark in it, a file
// with a random word, tells workers and clients that they see the same folder. The mark also lists
// outputs that are being written: whoever finds the mark of a coordinator that is dead removes
// them.
//
//   ASSIGN_OR_RETURN(const auto root, DataRoot::Open("/srv/tensors"));
//   ASSIGN_OR_RETURN(const Descriptor folder, root->Reach());   // for each job
//
// The coordinator holds a lock of its mark, by which others see that it lives.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/files/descriptor.h"
#include "server/files/open_beneath.h"

namespace hilbert_ring::server {

// Of a file that is made beneath a root, less the process's umask.
inline constexpr int kFileMode = 0666;

// The word in a mark file beneath a root; empty where it cannot be read, or has none.
std::string ReadMark(const std::string& root, const std::string& mark_file);

// INVALID_ARGUMENT where --data-root and --model-dir are one folder, by whatever link, or one lies
// in the other: callers could write models. OK where one is empty, or not there.
absl::Status CheckApart(const std::string& data_root, const std::string& model_dir);

// Thread-safe.
class DataRoot {
 public:
  // Removes what dead coordinators left. Errors: the folder is not there, or no file can be made in
  // it; the message names the flag.
  static absl::StatusOr<std::unique_ptr<DataRoot>> Open(const std::string& path);
  // Removes the mark, unless it lists outputs that could not be removed.
  ~DataRoot();
  DataRoot(const DataRoot&) = delete;
  DataRoot& operator=(const DataRoot&) = delete;

  const std::string& path() const { return path_; }
  const std::string& mark_file() const { return mark_file_; }  // its name, in the root
  const std::string& mark() const { return mark_; }

  // The folder, which is the one that it was at first. DATA_ROOT_GONE.
  absl::StatusOr<Descriptor> Reach() const;

  // A name of its own for an output that is not whole yet, in the folder of `path`. It is in the
  // mark until Forget. FILE_IO where that cannot be.
  absl::StatusOr<std::string> NameUnfinished(const std::string& path);
  void Forget(const std::string& name);  // of those given

 private:
  explicit DataRoot(std::string path) : path_(std::move(path)) {}
  absl::Status MakeMark();
  absl::Status RemoveLeftovers() const;
  bool Append(std::string_view lines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShortenList() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  std::string mark_file_, mark_;
  Descriptor mark_descriptor_;  // locked
  FileVersion mark_version_;    // of which the inode alone stays
  Mutex mutex_;
  std::set<std::string> unfinished_ ABSL_GUARDED_BY(mutex_);
  int64_t unfinished_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of their lines
  int64_t drawn_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t end_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of the mark
};

}  // namespace hilbert_ring::server
