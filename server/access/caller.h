// A caller of the public port: its name, role and quota.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

namespace hilbert_ring::server {

enum class Role {
  kSubmit,   // runs, sees and cancels jobs of its own
  kObserve,  // sees all jobs, and metrics
  kAdmin,    // both, and cancels all jobs
};

absl::string_view NameOf(Role role);

inline constexpr std::initializer_list<Role> kAnyRole = {Role::kSubmit, Role::kObserve,
                                                         Role::kAdmin};

// The largest quota. A larger job counts as one byte more, so that sums do not overflow.
inline constexpr int64_t kMostQuotaBytes = int64_t{1} << 50;

// Limits of one name's jobs together, waiting ones included. 0: any amount.
struct Quota {
  int64_t jobs = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;  // of q, k, v, out, lse and coordinates

  bool operator==(const Quota&) const = default;
};

struct Caller {
  std::string name;  // owner of its jobs; empty: without tokens and certificates
  Role role = Role::kSubmit;
  Quota quota;
  std::string folder;  // of its files, beneath the data root; ".": the root; empty: `name`
  std::string turns;   // the scheduler shares workers between these: the name, else the host
};

}  // namespace hilbert_ring::server
