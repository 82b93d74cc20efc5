// A file with a process's ports while it is ready. The process locks it, so that a second service
// does not replace it.
//
//   ReadyFile ready_file("/run/ready.json");
//   ready_file.Show({{"grpc_port", 8001}}, {"127.0.0.1:40001"});
//   ready_file.Hide();
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::server {

// Thread-safe. Errors are logged.
class ReadyFile {
 public:
  // Returns INVALID_ARGUMENT if the path exists and is not the ready file of an ended process. It
  // only reads the file.
  static absl::Status Check(const std::string& path);

  // Removes the file of an ended process. No function replaces or removes a file that Check
  // refuses.
  explicit ReadyFile(std::string path);
  ~ReadyFile();  // hides it
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

  // Writes {"name": port, ..., "pid": ..., "workers": [...]} atomically.
  void Show(const std::map<std::string, int>& ports, const std::vector<std::string>& workers);

  void Hide();

 private:
  absl::Status CheckOwn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(int file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;  // empty: no file
  Mutex mutex_;
  int file_ ABSL_GUARDED_BY(mutex_) = -1;  // descriptor, open and locked while shown
};

}  // namespace hilbert_ring::server
