#include "engine/base/return_if_error.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"

namespace hilbert_ring {
namespace {

absl::Status Wrong() {
  absl::Status status = absl::OutOfRangeError("heads is 0, at least 1 is needed");
  status.SetPayload("origin", absl::Cord("here"));
  return status;
}

// Yields its status and counts the calls.
struct Counted {
  absl::Status Yield() {
    ++calls;
    return status;
  }
  absl::Status status;
  int calls = 0;
};

absl::Status Pass(Counted& counted, bool& went_on) {
  RETURN_IF_ERROR(counted.Yield());
  went_on = true;
  return absl::OkStatus();
}

TEST(ReturnIfError, ReturnsCodeMessageAndPayload) {
  Counted counted{.status = Wrong()};
  bool went_on = false;
  EXPECT_EQ(Pass(counted, went_on), Wrong());
  EXPECT_FALSE(went_on);
  EXPECT_EQ(counted.calls, 1);
}

TEST(ReturnIfError, IsOneStatementOfABranch) {
  const auto choose = [](bool first) -> absl::Status {
    if (first)
      RETURN_IF_ERROR(absl::AbortedError("first"));
    else
      RETURN_IF_ERROR(absl::AbortedError("second"));
    return absl::OkStatus();
  };
  EXPECT_EQ(choose(true).message(), "first");
  EXPECT_EQ(choose(false).message(), "second");
}

// A template with a comma, to pass through the macros.
template <typename Value, int kAdded>
absl::StatusOr<Value> Add(absl::StatusOr<Value> value) {
  if (value.ok()) *value += kAdded;
  return value;
}

TEST(AssignOrReturn, DeclaresSeveralVariablesInOneScope) {
  const auto sum = [](absl::StatusOr<int> first,
                      absl::StatusOr<int> second) -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const int a, std::move(first));
    ASSIGN_OR_RETURN(const int b, Add<int, 10>(std::move(second)));
    return a + b;
  };
  EXPECT_EQ(sum(1, 2).value(), 13);
  EXPECT_EQ(sum(Wrong(), 2).status(), Wrong());
  EXPECT_EQ(sum(1, Wrong()).status(), Wrong());
}

}  // namespace
}  // namespace hilbert_ring
