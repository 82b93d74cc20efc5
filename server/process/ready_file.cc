#include "server/process/ready_file.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::server {

absl::Status WriteReadyFile(const std::string& path, const std::map<std::string, int>& ports,
                            const std::vector<std::string>& workers) {
  if (path.empty()) return absl::OkStatus();
  nlohmann::json json(ports);
  json["pid"] = getpid();
  json["workers"] = workers;
  const std::string draft = absl::StrCat(path, ".", getpid(), ".draft");
  std::ofstream file(draft);
  file << json.dump() << '\n';
  file.close();
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    unlink(draft.c_str());
    return absl::UnavailableError(absl::StrCat("ready file ", path, ": ", reason));
  }
  return absl::OkStatus();
}

void RemoveReadyFile(const std::string& path) {
  if (!path.empty()) unlink(path.c_str());
}

}  // namespace hilbert_ring::server
