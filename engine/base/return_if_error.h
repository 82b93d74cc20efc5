// Returning from a function on the first error.
//
//   absl::StatusOr<Plan> PlanOf(absl::string_view text) {
//     ASSIGN_OR_RETURN(const JobSpec spec, ParseJobSpec(text));
//     RETURN_IF_ERROR(Validate(spec));
//     return MakePlan(spec, 2);
//   }
//
// Both return the status as it is. A caller that adds a message or cleans up writes the branch out.
// Only source files use them, and no header of the client library: macros have no namespace.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(...)                                   \
  do {                                                         \
    const absl::Status& hilbert_ring_status = (__VA_ARGS__);   \
    if (!hilbert_ring_status.ok()) return hilbert_ring_status; \
  } while (false)

// Assigns the value of an absl::StatusOr to the target, which may declare a variable, or returns
// the status. It is more than one statement: the body of an `if` needs braces.
#define ASSIGN_OR_RETURN(target, ...) \
  HILBERT_RING_ASSIGN_OR_RETURN_AT(__LINE__, target, __VA_ARGS__)

#define HILBERT_RING_ASSIGN_OR_RETURN_AT(line, target, ...) \
  HILBERT_RING_ASSIGN_OR_RETURN_NAMED(line, target, __VA_ARGS__)
#define HILBERT_RING_ASSIGN_OR_RETURN_NAMED(line, target, ...)                                 \
  auto hilbert_ring_result_##line = (__VA_ARGS__);                                             \
  if (!hilbert_ring_result_##line.ok()) return std::move(hilbert_ring_result_##line).status(); \
  target = *std::move(hilbert_ring_result_##line)
