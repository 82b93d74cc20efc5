#include "engine/base/return_if_error.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
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

TEST(ReturnIfError, GoesOnAfterAnOkStatus) {
  Counted counted;
  bool went_on = false;
  EXPECT_TRUE(Pass(counted, went_on).ok());
  EXPECT_TRUE(went_on);
  EXPECT_EQ(counted.calls, 1);
}

TEST(ReturnIfError, ReturnsCodeMessageAndPayload) {
  Counted counted{.status = Wrong()};
  bool went_on = false;
  EXPECT_EQ(Pass(counted, went_on), Wrong());
  EXPECT_FALSE(went_on);
  EXPECT_EQ(counted.calls, 1);
}

TEST(ReturnIfError, ReturnsFromAFunctionWithAValue) {
  const auto value_of = [](const absl::Status& status) -> absl::StatusOr<int> {
    RETURN_IF_ERROR(status);
    return 3;
  };
  EXPECT_EQ(value_of(absl::OkStatus()).value(), 3);
  EXPECT_EQ(value_of(Wrong()).status(), Wrong());
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

TEST(AssignOrReturn, AssignsToWhatIsThere) {
  std::string text = "before";
  const auto assign = [&text](absl::StatusOr<std::string> value) -> absl::Status {
    ASSIGN_OR_RETURN(text, std::move(value));
    return absl::OkStatus();
  };
  EXPECT_EQ(assign(Wrong()), Wrong());
  EXPECT_EQ(text, "before");
  EXPECT_TRUE(assign("after").ok());
  EXPECT_EQ(text, "after");
}

TEST(AssignOrReturn, MovesValuesThatCannotBeCopied) {
  const auto pass = []() -> absl::StatusOr<std::unique_ptr<int>> {
    ASSIGN_OR_RETURN(auto value, absl::StatusOr<std::unique_ptr<int>>(std::make_unique<int>(7)));
    return value;
  };
  EXPECT_EQ(*pass().value(), 7);
}

TEST(AssignOrReturn, LeavesAVariableThatItReadsAsItIs) {
  const absl::StatusOr<std::string> kept("kept");
  const auto copy = [&kept]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(std::string value, kept);
    return value;
  };
  EXPECT_EQ(copy().value(), "kept");
  EXPECT_EQ(kept.value(), "kept");
}

}  // namespace
}  // namespace hilbert_ring
