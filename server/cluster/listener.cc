#include "server/cluster/listener.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {

bool ListensAt(pid_t pid, int port) {
  const std::string process = absl::StrCat("/proc/", pid);
  std::set<std::string> sockets;  // "socket:[inode]"
  std::error_code error;
  for (std::filesystem::directory_iterator file(process + "/fd", error), end; !error && file != end;
       file.increment(error)) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(file->path(), gone);
    if (!gone && target.starts_with("socket:")) sockets.insert(target);
  }
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream lines(process + table);
    std::string line;
    std::getline(lines, line);  // the columns' names
    while (std::getline(lines, line)) {
      // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
      std::istringstream columns(line);
      std::string column[10];
      for (std::string& text : column) columns >> text;
      const size_t colon = column[1].rfind(':');
      if (colon == std::string::npos || column[3] != "0A") continue;
      int64_t listens_at = 0;
      if (!absl::SimpleHexAtoi(column[1].substr(colon + 1), &listens_at)) continue;
      if (listens_at == port && sockets.contains(absl::StrCat("socket:[", column[9], "]"))) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace hilbert_ring::server
