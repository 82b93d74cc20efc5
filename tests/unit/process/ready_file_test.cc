#include "server/process/ready_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace hilbert_ring::server {
namespace {

TEST(ReadyFile, IsThereWholeOrNotAtAll) {
  const std::string folder = ::testing::TempDir() + "ready_file_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/ready.json";
  ASSERT_TRUE(WriteReadyFile(path, {{"grpc_port", 1}, {"http_port", 2}}, {"a:1", "b:2"}).ok());
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json.at("grpc_port"), 1);
  EXPECT_EQ(json.at("http_port"), 2);
  EXPECT_EQ(json.at("pid"), getpid());
  EXPECT_EQ(json.at("workers").size(), 2u);
  RemoveReadyFile(path);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_TRUE(absl::IsUnavailable(WriteReadyFile(folder + "/no/such", {}, {})));
  EXPECT_TRUE(WriteReadyFile("", {}, {}).ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hilbert_ring::server
