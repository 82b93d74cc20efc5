// The file that says where a process listens, while it is ready. Its disk may not answer: a thread
// of its own writes it. The process that shows a file holds a lock on it, so that a second service
// does not take its place.
//
//   RETURN_IF_ERROR(ReadyFile::Check("/run/ready.json"));
//   ReadyFile ready_file("/run/ready.json");
//   ready_file.Show({{"grpc_port", 8001}}, {"127.0.0.1:40001"});
//   ...
//   ready_file.Hide();
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace hilbert_ring::server {

// Thread-safe. Nothing here waits but the end. What is wrong with the file, the log says.
class ReadyFile {
 public:
  // INVALID_ARGUMENT: at the path is something else than the file of a process that ended: a
  // device, a link, another program's file, the file of a process that runs. An empty path is no
  // file. Reads the file, and waits for its disk.
  static absl::Status Check(const std::string& path);

  // Removes the file of an earlier process, which must not be taken for this one's. A file that
  // Check refuses stays, here and below. Throws std::system_error where there is no thread.
  explicit ReadyFile(std::string path);
  // Removes it, and waits two seconds at most for that.
  ~ReadyFile();
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

  // {"name": port, ..., "pid": ..., "workers": [...]}, written as a whole: a reader sees all of it
  // or no file.
  void Show(const std::map<std::string, int>& ports, const std::vector<std::string>& workers);

  void Hide();

 private:
  struct Shared;  // with the thread

  std::shared_ptr<Shared> shared_;  // null: there is no file
};

}  // namespace hilbert_ring::server
