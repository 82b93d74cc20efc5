#include "server/process/trace_context.h"

#include <string>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

// The specification's own example.
const std::string kExample = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, AcceptsValidValues) {
  EXPECT_TRUE(IsTraceparent(kExample));
  std::string later = kExample;
  later[1] = '1';
  EXPECT_TRUE(IsTraceparent(later)) << "a later version";
  EXPECT_TRUE(IsTraceparent(later + "-more")) << "a later version may be longer";
}

TEST(TraceContext, RefusesInvalidValues) {
  EXPECT_FALSE(IsTraceparent(""));
  EXPECT_FALSE(IsTraceparent(kExample.substr(1)));
  EXPECT_FALSE(IsTraceparent(kExample + "-more")) << "version 00 ends there";
  EXPECT_FALSE(IsTraceparent("ff" + kExample.substr(2)));
  EXPECT_FALSE(IsTraceparent("00-00000000000000000000000000000000-b7ad6b7169203331-01"));
  EXPECT_FALSE(IsTraceparent("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"));
  for (size_t place = 0; place < kExample.size(); ++place) {
    std::string wrong = kExample;
    wrong[place] = 'G';
    EXPECT_FALSE(IsTraceparent(wrong)) << wrong;
    wrong[place] = '\n';
    EXPECT_FALSE(IsTraceparent(wrong)) << place;
  }
}

}  // namespace
}  // namespace hilbert_ring::server
