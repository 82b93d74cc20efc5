// Who makes a call on the public port, and what it may do.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

namespace hilbert_ring::server {

enum class Role {
  kSubmit,   // jobs of its own: run, see and cancel them
  kObserve,  // sees all jobs, and metrics
  kAdmin,    // both, and cancels all jobs
};

absl::string_view NameOf(Role role);

inline constexpr std::initializer_list<Role> kAnyRole = {Role::kSubmit, Role::kObserve,
                                                         Role::kAdmin};

// More is not counted apart: so large a job is beyond every quota of bytes.
inline constexpr int64_t kMostQuotaBytes = int64_t{1} << 50;

// What jobs of one name may take together, waiting ones included. 0: any amount.
struct Quota {
  int64_t jobs = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;  // of q, k, v, out, lse and coordinates

  bool operator==(const Quota&) const = default;
};

struct Caller {
  std::string name;  // whose jobs they are; empty where callers are not told apart
  Role role = Role::kSubmit;
  Quota quota;
  // Beneath the data root, of its files; "." is the root itself, empty a folder of its name.
  std::string folder;
  std::string turns;  // by what the scheduler tells callers apart: the name, else the host
};

}  // namespace hilbert_ring::server
