// The tokens of --auth-token-file: whose they are. The file has a JSON object on each line:
//
//   {"name": "lab", "role": "submit", "token": "...", "jobs": 8, "tokens": 100000000}
//   {"name": "prometheus", "role": "observe", "sha256": "9f86d081..."}
//
//   auto tokens = AuthTokens::Read("/run/secrets/tokens");
//   auto caller = (*tokens)->Find("Bearer ...");        // with each call
//
// An empty file lets nobody in. The file is read again when it has changed, which is looked for
// once a second at most; one that is wrong then is named in the log, and the tokens stay as they
// were. A name may have several tokens, so that one can be replaced by another: role and quota must
// be the same. Tokens are kept as SHA-256, and never part of a message or of a log.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/access/caller.h"
#include "server/process/deadline.h"

namespace hilbert_ring::server {

// Thread-safe.
class AuthTokens {
 public:
  // INVALID_ARGUMENT, naming file, line and field. `now`: the clock, for tests.
  static absl::StatusOr<std::unique_ptr<AuthTokens>> Read(
      const std::string& path, std::function<Clock::time_point()> now = Clock::now);

  // By the value of an `authorization` header; empty: there is none. UNAUTHENTICATED (AUTH_TOKEN).
  // Takes as long whichever token it is.
  absl::StatusOr<Caller> Find(std::string_view authorization);

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Entry {
    Digest digest;
    Caller caller;
  };
  using Table = std::vector<Entry>;
  struct Version {  // of the file
    int64_t seconds = 0, nanoseconds = 0, bytes = 0;
    uint64_t inode = 0;
    bool operator==(const Version&) const = default;
  };

  AuthTokens(std::string path, std::function<Clock::time_point()> now)
      : path_(std::move(path)), now_(std::move(now)) {}

  static absl::StatusOr<Table> Parse(const std::string& text);
  static absl::Status AddLine(const std::string& line, Table& table);
  absl::Status ReadAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<const Table> Current();

  const std::string path_;
  const std::function<Clock::time_point()> now_;
  Mutex mutex_;
  Version version_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point looked_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Table> table_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server
