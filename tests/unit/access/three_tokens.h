// A token of each role, from a file.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "server/access/auth_tokens.h"

namespace hilbert_ring::server {

// lab submits, eye observes, root is an administrator; the token of each is 0123456789abcdef-NAME.
inline std::unique_ptr<AuthTokens> ThreeTokens() {
  const std::string path = ::testing::TempDir() + "/three_tokens_" + std::to_string(getpid());
  std::ofstream(path) << R"({"name": "lab", "role": "submit", "token": "0123456789abcdef-lab"}
{"name": "eye", "role": "observe", "token": "0123456789abcdef-eye"}
{"name": "root", "role": "admin", "token": "0123456789abcdef-root"}
)";
  auto tokens = AuthTokens::Read(path);
  std::filesystem::remove(path);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return *std::move(tokens);
}

}  // namespace hilbert_ring::server
