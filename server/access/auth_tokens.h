// The tokens of --auth-token-file: whose they are. The file has a JSON object on each line:
//
//   {"name": "lab", "role": "submit", "token": "...", "jobs": 8, "tokens": 100000000}
//   {"name": "night", "role": "submit", "token": "...", "root": "night/slides"}
//   {"name": "prometheus", "role": "observe", "sha256": "9f86d081..."}
//
//   auto tokens = AuthTokens::Read("/run/secrets/tokens");
//   auto caller = (*tokens)->Find("Bearer ...");        // with each call
//
// An empty file lets nobody in. A thread looks once a second whether the file has changed, and
// reads it again, so no call waits for it; one that is wrong then is named in the log, and the
// tokens stay as they were. A name may have several tokens, so that one can be replaced by another:
// role, quota and root must be the same. Tokens are kept as SHA-256, and never part of a message or
// of a log.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/access/caller.h"
#include "server/process/interval_thread.h"

namespace hilbert_ring::server {

// Thread-safe.
class AuthTokens {
 public:
  // INVALID_ARGUMENT, naming file, line and field.
  static absl::StatusOr<std::unique_ptr<AuthTokens>> Read(
      const std::string& path,
      std::chrono::milliseconds look_again = std::chrono::milliseconds(1000));
  ~AuthTokens();

  // By the value of an `authorization` header; empty: there is none. UNAUTHENTICATED (AUTH_TOKEN).
  // Takes as long whichever token it is.
  absl::StatusOr<Caller> Find(std::string_view authorization) const;

  // Looks at the file now.
  void Look();

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Entry {
    Digest digest;
    Caller caller;
  };
  using Table = std::vector<Entry>;
  struct Version {  // of the file
    int64_t seconds = 0, nanoseconds = 0, change_seconds = 0, change_nanoseconds = 0, bytes = 0;
    uint64_t inode = 0;
    bool operator==(const Version&) const = default;
  };

  explicit AuthTokens(std::string path) : path_(std::move(path)) {}

  static absl::StatusOr<Table> Parse(const std::string& text);
  static absl::Status AddLine(const std::string& line, Table& table);
  absl::Status ReadAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(looking_);
  std::shared_ptr<const Table> Current() const;

  const std::string path_;
  // One look at a time. Callers take mutex_ alone: the file may be slow.
  Mutex looking_ ABSL_ACQUIRED_BEFORE(mutex_);
  Version version_ ABSL_GUARDED_BY(looking_);    // of what table_ was read from
  absl::Status told_ ABSL_GUARDED_BY(looking_);  // the error that the log has
  mutable Mutex mutex_;
  std::shared_ptr<const Table> table_ ABSL_GUARDED_BY(mutex_);
  std::optional<IntervalThread> watch_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
