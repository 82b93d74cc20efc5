#include "tests/support/process_account.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/test_folder.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kBlockBytes = 512;  // of st_blocks

constexpr char kShards[] = "/memfd:hilbert-ring-shard";

std::vector<std::vector<std::string>> LinesOf(pid_t pid, const char* name) {
  std::vector<std::vector<std::string>> lines;
  for (const std::string& line : static_cast<std::vector<std::string>>(
           absl::StrSplit(FileText(absl::StrCat("/proc/", pid, "/", name)), '\n'))) {
    lines.push_back(absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty()));
  }
  return lines;
}

// Returns the shards' memfds that a process has open, and counts its descriptors and their bytes.
std::set<std::string> OpenMemories(pid_t pid, ProcessAccount& account) {
  std::set<std::string> memories;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    ++account.descriptors;
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry->path(), gone).string();
    struct stat inode = {};
    if (target.rfind(kShards, 0) == 0 && stat(entry->path().c_str(), &inode) == 0) {
      const bool first = memories.insert(absl::StrCat(inode.st_ino)).second;
      if (first) account.shared_memory_bytes += kBlockBytes * inode.st_blocks;
    }
  }
  return memories;
}

void AddMappedMemories(pid_t pid, std::set<std::string>& memories) {
  std::ifstream maps(absl::StrCat("/proc/", pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find(kShards) == std::string::npos) continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() > 4) memories.insert(words[4]);  // inode
  }
}

}  // namespace

ProcessMemory MemoryOf(pid_t pid) {
  ProcessMemory memory;
  for (const std::vector<std::string>& words : LinesOf(pid, "status")) {
    int64_t kib = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &kib)) continue;
    if (words[0] == "RssAnon") memory.anonymous = kib << 10;
    if (words[0] == "RssFile") memory.file = kib << 10;
    if (words[0] == "RssShmem") memory.shared = kib << 10;
  }
  return memory;
}

int64_t ProportionalBytesOf(pid_t pid) {
  int64_t bytes = 0;
  for (const std::vector<std::string>& words : LinesOf(pid, "smaps_rollup")) {
    int64_t kib = 0;
    if (words.size() > 1 && (words[0] == "Pss_Anon" || words[0] == "Pss_Shmem") &&
        absl::SimpleAtoi(words[1], &kib)) {
      bytes += kib << 10;
    }
  }
  return bytes;
}

bool IsAlive(pid_t pid) {
  for (const std::vector<std::string>& words : LinesOf(pid, "status")) {
    if (words.size() > 1 && words[0] == "State") return words[1] != "Z";
  }
  return false;
}

ProcessAccount AccountOf(pid_t pid) {
  ProcessAccount account;
  for (const std::vector<std::string>& words : LinesOf(pid, "status")) {
    if (words.size() < 2) continue;
    if (words[0] == "State") {
      account.there = true;
      account.zombie = words[1] == "Z";
    }
    if (words[0] == "Threads" && !absl::SimpleAtoi(words[1], &account.threads)) account.threads = 0;
  }
  account.memory = MemoryOf(pid);
  if (!account.there || account.zombie) return account;
  std::set<std::string> memories = OpenMemories(pid, account);
  AddMappedMemories(pid, memories);
  account.shared_memories = static_cast<int>(memories.size());
  return account;
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator("/proc", error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    pid_t candidate = 0;
    if (!absl::SimpleAtoi(entry->path().filename().string(), &candidate)) continue;
    const std::string stat = FileText(absl::StrCat("/proc/", candidate, "/stat"));
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) continue;
    char state = 0;
    int parent = 0;
    if (std::sscanf(stat.c_str() + name_end + 1, " %c %d", &state, &parent) == 2 && parent == pid) {
      children.push_back(candidate);
    }
  }
  std::sort(children.begin(), children.end());
  return children;
}

}  // namespace hilbert_ring::testing
