#include "wire/reason.h"

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/status.h"

namespace hilbert_ring::wire {
namespace {

using ::testing::HasSubstr;

const char* WhoMayTryAgain(TryAgain again) {
  switch (again) {
    case TryAgain::kNobody:
      return "-";
    case TryAgain::kService:
      return "the service";
    case TryAgain::kServiceAndClient:
      return "the service, then the client";
    case TryAgain::kClient:
      return "the client";
    case TryAgain::kLater:
      return "the client, later";
  }
  return "";
}

TEST(Reason, EachHasANameOfItsOwnAndIsFoundByIt) {
  std::set<std::string_view> names;
  for (const Reason& reason : AllReasons()) {
    EXPECT_TRUE(names.insert(reason.name).second) << reason.name;
    EXPECT_EQ(FindReason(reason.name), &reason);
    EXPECT_NE(reason.code, absl::StatusCode::kOk) << reason.name;
  }
  EXPECT_EQ(FindReason("INVALID_ARGUMENT"), nullptr);
}

// Other workers may succeed after these failures.
TEST(Reason, TheServiceTriesAgainWhatAWorkerFailed) {
  std::set<std::string_view> again;
  for (const Reason& reason : AllReasons()) {
    if (reason.again == TryAgain::kService || reason.again == TryAgain::kServiceAndClient) {
      again.insert(reason.name);
    }
  }
  EXPECT_EQ(again, (std::set<std::string_view>{"WORKER_LOST", "WORKER_DATA_LOSS"}));
}

TEST(Reason, WhatIsUsedUpIsTriedLaterUnlessNobodyIsTo) {
  for (const Reason& reason : AllReasons()) {
    EXPECT_EQ(
        MayHelpLater(ErrorOf(reason, "it is")),
        reason.code == absl::StatusCode::kResourceExhausted && reason.again == TryAgain::kLater)
        << reason.name;
  }
  EXPECT_TRUE(MayHelpLater(absl::ResourceExhaustedError("of the transport, without a reason")));
  EXPECT_FALSE(MayHelpLater(WithReason(absl::UnavailableError("it goes"), reason::kQueueFull)));
  EXPECT_FALSE(MayHelpLater(absl::OkStatus()));
}

TEST(Reason, ThePageForReadersIsThisTable) {
  std::ifstream file(HILBERT_RING_ERRORS_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(page.empty());
  size_t lines = 0;
  for (size_t at = page.find("\n| `"); at != std::string::npos; at = page.find("\n| `", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, AllReasons().size());
  for (const Reason& reason : AllReasons()) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat("\n| `", std::string(reason.name), "` | ",
                                             absl::StatusCodeToString(reason.code), " | ",
                                             WhoMayTryAgain(reason.again), " | ",
                                             std::string(reason.meaning), " |\n")));
  }
}

}  // namespace
}  // namespace hilbert_ring::wire
