#include "wire/status.h"

#include "engine/base/peer_error.h"
#include "engine/spec/field_error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace hilbert_ring::wire {
namespace {

TEST(Status, GoesThereAndBack) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status =
        WithReason(absl::Status(static_cast<absl::StatusCode>(code), "what happened"), "WHY");
    const grpc::Status sent = ToGrpc(status);
    EXPECT_EQ(sent.error_code(), code);
    EXPECT_EQ(sent.error_message(), "what happened");
    const absl::Status back = FromGrpc(sent);
    EXPECT_EQ(back.code(), status.code());
    EXPECT_EQ(back.message(), status.message());
    EXPECT_EQ(ReasonOf(back), "WHY");
  }
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
}

TEST(Status, AFieldAndItsLimitGoThereAndBack) {
  const absl::Status plain = absl::OutOfRangeError("heads is 9000");
  for (const absl::Status& status :
       {WithField(plain, "heads", 4096), WithField(plain, "heads"), plain}) {
    EXPECT_EQ(FieldOf(FromGrpc(ToGrpc(WithReason(status, "WHY")))), FieldOf(status));
  }
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(ToGrpc(WithField(plain, "heads", 4096)).error_details()));
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.metadata().at("field"), "heads");
  EXPECT_EQ(info.metadata().at("limit"), "4096");
}

TEST(Status, ThePeerOfARingGoesThereAndBack) {
  const absl::Status plain = absl::DataLossError("a block is corrupt");
  EXPECT_EQ(PeerOf(FromGrpc(ToGrpc(WithReason(WithPeer(plain, 3), "WHY")))), 3);
  EXPECT_EQ(PeerOf(FromGrpc(ToGrpc(WithPeer(WithPeer(plain, 0), 3)))), 0) << "the innermost one";
  EXPECT_EQ(PeerOf(FromGrpc(ToGrpc(plain))), std::nullopt);
  EXPECT_EQ(PeerOf(WithPeer(plain, -1)), std::nullopt);
}

TEST(Status, TheInnermostReasonWins) {
  const absl::Status status = WithReason(WithReason(absl::AbortedError("lost"), "INNER"), "OUTER");
  EXPECT_EQ(ReasonOf(status), "INNER");
  EXPECT_TRUE(WithReason(absl::OkStatus(), "NONE").ok());
}

TEST(Status, WithoutDetailsTheCodeIsTheReason) {
  const absl::Status status = FromGrpc({grpc::StatusCode::UNAVAILABLE, "connection refused"});
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(ReasonOf(status), "UNAVAILABLE");
  // Malformed details are ignored.
  EXPECT_TRUE(absl::IsInternal(FromGrpc({grpc::StatusCode::INTERNAL, "x", "\xff\xff\xff"})));
}

TEST(Status, AnIpv6AddressHasBrackets) {
  const grpc::Status said(grpc::StatusCode::UNAVAILABLE,
                          "last error: ipv6:%5B::1%5D:8001: refused, ipv6:%5Bfe80::1%25eth0%5D:80");
  EXPECT_EQ(FromGrpc(said).message(), "last error: [::1]:8001: refused, [fe80::1%eth0]:80");
  EXPECT_EQ(FromGrpc({grpc::StatusCode::UNKNOWN, "a%25%5B"}).message(), "a%25%5B");
}

TEST(Status, LongMessagesAreCutShort) {
  const std::string start(1023, 'x');
  const grpc::Status status = ToGrpc(absl::NotFoundError(start + std::string(9000, '\xc3')));
  EXPECT_LT(status.error_message().size(), 1100u);
  EXPECT_LT(status.error_details().size(), 1300u);
  EXPECT_EQ(status.error_message().substr(0, 1023), start);
  EXPECT_NE(status.error_message().find("(10023 bytes)"), std::string::npos);
}

}  // namespace
}  // namespace hilbert_ring::wire
