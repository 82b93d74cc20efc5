// The coordinator's folder of files that jobs pass by path (--data-root). Its mark, a file with a
// random word, lets workers and clients check that they see the same folder. The mark also lists
// unfinished outputs; a later coordinator removes those of a dead one, whose mark is not locked.
//
//   ASSIGN_OR_RETURN(const auto root, DataRoot::Open("/srv/tensors"));
//   ASSIGN_OR_RETURN(const Descriptor folder, root->Reach());   // for each job
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"
#include "engine/base/mutex.h"
#include "server/files/open_beneath.h"

namespace hilbert_ring::server {

inline constexpr int kFileMode = 0666;  // of new files, less the umask

// The word in a mark file beneath a root; empty if it cannot be read.
std::string ReadMark(const std::string& root, const std::string& mark_file);

// INVALID_ARGUMENT if one folder is or contains the other, through links or mounts too: callers
// could write models. OK if a folder is empty or missing.
absl::Status CheckApart(const std::string& data_root, const std::string& model_dir);

// Thread-safe.
class DataRoot {
 public:
  // Removes outputs of dead coordinators. FAILED_PRECONDITION names the flag.
  static absl::StatusOr<std::unique_ptr<DataRoot>> Open(const std::string& path);
  ~DataRoot();  // keeps a mark that lists outputs
  DataRoot(const DataRoot&) = delete;
  DataRoot& operator=(const DataRoot&) = delete;

  const std::string& path() const { return path_; }
  const std::string& mark_file() const { return mark_file_; }  // in the root
  const std::string& mark() const { return mark_; }

  // DATA_ROOT_GONE if the folder has not the mark of Open.
  absl::StatusOr<Descriptor> Reach() const;

  // Returns a new name for an unfinished output, in the folder of `path`, and lists it in the mark
  // until Forget. FILE_IO if the mark cannot be written.
  absl::StatusOr<std::string> NameUnfinished(const std::string& path);
  void Forget(const std::string& name);

 private:
  explicit DataRoot(std::string path) : path_(std::move(path)) {}
  absl::Status MakeMark();
  absl::Status RemoveLeftovers() const;
  bool Append(std::string_view lines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShortenList() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  std::string mark_file_, mark_;
  Descriptor mark_descriptor_;  // locked
  FileVersion mark_version_;    // only its inode stays
  Mutex mutex_;
  std::set<std::string> unfinished_ ABSL_GUARDED_BY(mutex_);
  int64_t unfinished_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of their lines
  int64_t drawn_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t end_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes of the mark
};

}  // namespace hilbert_ring::server
