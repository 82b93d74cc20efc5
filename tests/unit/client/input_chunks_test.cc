#include "client/cpp/input_chunks.h"

#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/checksum.h"

namespace hilbert_ring::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InputChunksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (auto* bytes : {&q_, &k_, &v_}) {
      bytes->resize(static_cast<size_t>(10 * 64));
      for (std::byte& byte : *bytes) byte = static_cast<std::byte>(next_++ % 251);
    }
    k_.resize(10 * 32);
  }
  JobTensors Tensors() const {
    return {.bands = {{.tensor = v1::TENSOR_Q, .rows = 10, .row_bytes = 64, .bytes = q_},
                      {.tensor = v1::TENSOR_K, .rows = 10, .row_bytes = 32, .bytes = k_},
                      {.tensor = v1::TENSOR_V, .rows = 10, .row_bytes = 64, .bytes = v_}}};
  }

  std::vector<std::byte> q_, k_, v_;  // rows of 64, 32 and 64 bytes
  int next_ = 0;
};

TEST_F(InputChunksTest, RowsOfATokenTravelTogether) {
  const JobTensors job = Tensors();
  InputChunks chunks(job, 4 * 64 + 63);
  ASSERT_TRUE(chunks.Check().ok());
  v1::Chunk chunk;
  std::string_view payload;
  std::vector<std::string> order;
  std::map<v1::Tensor, std::string> tensors;
  while (chunks.Next(chunk, payload)) {
    order.push_back(std::to_string(chunk.tensor()) + ":" + std::to_string(chunk.first_row()) + "+" +
                    std::to_string(chunk.rows()));
    EXPECT_EQ(chunk.crc32c(), wire::Crc32c(payload));
    tensors[chunk.tensor()] += payload;
  }
  EXPECT_THAT(order, ElementsAre("2:0+4", "3:0+4", "4:0+4", "2:4+4", "3:4+4", "4:4+4", "2:8+2",
                                 "3:8+2", "4:8+2"));
  EXPECT_EQ(tensors[v1::TENSOR_Q],
            std::string(reinterpret_cast<const char*>(q_.data()), q_.size()));
  EXPECT_EQ(tensors[v1::TENSOR_K],
            std::string(reinterpret_cast<const char*>(k_.data()), k_.size()));
  EXPECT_EQ(tensors[v1::TENSOR_V],
            std::string(reinterpret_cast<const char*>(v_.data()), v_.size()));
  EXPECT_EQ(job.input_bytes(), 10 * (64 + 32 + 64));
}

TEST_F(InputChunksTest, EachTensorTravelsUntilItEnds) {
  for (const auto& [queries, keys, expected] :
       {std::tuple(int64_t{5}, int64_t{10}, "2:0+4 3:0+4 4:0+4 2:4+1 3:4+4 4:4+4 3:8+2 4:8+2 "),
        {6, 3, "2:0+4 3:0+3 4:0+3 2:4+2 "},
        {4, 0, "2:0+4 "}}) {
    JobTensors job = Tensors();
    job.bands[0].rows = queries;
    job.bands[1].rows = job.bands[2].rows = keys;
    InputChunks chunks(job, 4 * 64);
    v1::Chunk chunk;
    std::string_view payload;
    std::string order;
    while (chunks.Next(chunk, payload)) {
      order += std::to_string(chunk.tensor()) + ":" + std::to_string(chunk.first_row()) + "+" +
               std::to_string(chunk.rows()) + " ";
    }
    EXPECT_EQ(order, expected);
  }
}

TEST_F(InputChunksTest, RefusesRowsLongerThanAPayload) {
  const absl::Status status = InputChunks(Tensors(), 63).Check();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a row of Q takes 64 bytes, over the limit of 63"));
}

}  // namespace
}  // namespace hilbert_ring::client
