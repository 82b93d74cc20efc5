// The callers of --auth-token-file. The file has a JSON object on each line:
//
//   {"name": "lab", "role": "submit", "token": "...", "jobs": 8, "tokens": 100000000}
//   {"name": "night", "role": "submit", "token": "...", "root": "night/slides"}
//   {"name": "prometheus", "role": "observe", "sha256": "9f86d081..."}
//
//   auto tokens = AuthTokens::Read("/run/secrets/tokens");
//   auto caller = (*tokens)->Find("Bearer ...");        // with each call
//
// An empty file refuses every caller. A thread checks the file once a second and reads it again if
// it has changed, so calls never wait for the file. If the new text is wrong, the log has the error
// and the old tokens stay. A name may have several tokens of the same role, quota and root, so that
// an operator can replace one. Tokens are kept as SHA-256 and never appear in messages or logs.
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
  static absl::StatusOr<std::unique_ptr<AuthTokens>> Read(
      const std::string& path,
      std::chrono::milliseconds look_again = std::chrono::milliseconds(1000));
  ~AuthTokens();

  // authorization: value of the header; empty: not given. UNAUTHENTICATED (AUTH_TOKEN). Takes the
  // same time for every token.
  absl::StatusOr<Caller> Find(std::string_view authorization) const;

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
  // Held while the file is read, which may be slow. Callers take only mutex_.
  Mutex looking_ ABSL_ACQUIRED_BEFORE(mutex_);
  Version version_ ABSL_GUARDED_BY(looking_);      // of the file that table_ was read from
  absl::Status logged_ ABSL_GUARDED_BY(looking_);  // the last error
  mutable Mutex mutex_;
  std::shared_ptr<const Table> table_ ABSL_GUARDED_BY(mutex_);
  std::optional<IntervalThread> watch_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::server
