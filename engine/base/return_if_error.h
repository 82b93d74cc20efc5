// Returning from a function on the first error.
//
//   absl::StatusOr<Plan> PlanOf(absl::string_view text) {
//     ASSIGN_OR_RETURN(const JobSpec spec, ParseJobSpec(text));
//     RETURN_IF_ERROR(Validate(spec));
//     return MakePlan(spec, 2);
//   }
//
// Both return the status as it is. Where a message is to be added to it, or something is to be
// done before the function returns, the branch is written out. They are for source files: a header
// of the client library does not include them, because macros have no namespace.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the absl::Status that the expression yields when it is an error.
#define RETURN_IF_ERROR(...)                                   \
  do {                                                         \
    const absl::Status& hilbert_ring_status = (__VA_ARGS__);   \
    if (!hilbert_ring_status.ok()) return hilbert_ring_status; \
  } while (false)

// ASSIGN_OR_RETURN(target, expression) assigns the value of the absl::StatusOr that the expression
// yields to the target, which may declare a variable; returns the status when it is an error. It
// is more than one statement, so it does not compile as the body of an `if` without braces.
#define ASSIGN_OR_RETURN(target, ...) \
  HILBERT_RING_ASSIGN_OR_RETURN_AT(__LINE__, target, __VA_ARGS__)

// The line makes the name of the variable in between one of its own.
#define HILBERT_RING_ASSIGN_OR_RETURN_AT(line, target, ...) \
  HILBERT_RING_ASSIGN_OR_RETURN_NAMED(line, target, __VA_ARGS__)
#define HILBERT_RING_ASSIGN_OR_RETURN_NAMED(line, target, ...)                                 \
  auto hilbert_ring_result_##line = (__VA_ARGS__);                                             \
  if (!hilbert_ring_result_##line.ok()) return std::move(hilbert_ring_result_##line).status(); \
  target = *std::move(hilbert_ring_result_##line)
