// The file that says where a process listens, while it is ready. The process that shows a file
// holds a lock on it, so that a second service does not take its place.
//
//   RETURN_IF_ERROR(ReadyFile::Check("/run/ready.json"));
//   ReadyFile ready_file("/run/ready.json");
//   ready_file.Show({{"grpc_port", 8001}}, {"127.0.0.1:40001"});
//   ...
//   ready_file.Hide();
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::server {

// Thread-safe. What is wrong with the file, the log says.
class ReadyFile {
 public:
  // INVALID_ARGUMENT: at the path is something else than the file of a process that ended: a
  // device, a link, another program's file, the file of a process that runs. An empty path is no
  // file. Reads the file, and waits for its disk.
  static absl::Status Check(const std::string& path);

  // Removes the file of an earlier process, which must not be taken for this one's. A file that
  // Check refuses stays, here and below.
  explicit ReadyFile(std::string path);
  ~ReadyFile();  // hides it
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

  // {"name": port, ..., "pid": ..., "workers": [...]}, written as a whole: a reader sees all of it
  // or no file.
  void Show(const std::map<std::string, int>& ports, const std::vector<std::string>& workers);

  void Hide();

 private:
  // Whether the file at the path is this one's, or one that Check takes.
  absl::Status CheckOwn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(int file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;  // empty: there is no file
  Mutex mutex_;
  int file_ ABSL_GUARDED_BY(mutex_) = -1;  // open and locked while it is shown
};

}  // namespace hilbert_ring::server
