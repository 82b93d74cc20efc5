#include "server/rows/row_check.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/spec/numbers.h"
#include "gtest/gtest.h"
#include "tests/random/random_spec.h"
#include "tests/support/reference_attention.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kEveryRow = int64_t{1} << 40;

struct RandomJob {
  explicit RandomJob(std::mt19937_64& random)
      : spec(hilbert_ring::testing::RandomSpec(random, {.max_tokens = 80})),
        coords(hilbert_ring::testing::RandomCoords(spec, random)),
        bias_coords(hilbert_ring::testing::RandomBiasCoords(spec, random)),
        order(*Permutation::Make(spec, coords)),
        plan(*MakePlan(spec, 1 + static_cast<int>(random() % 3))),
        router(spec, plan, order) {
    for (int rank = 0; rank < plan.shards.workers(); ++rank) {
      const ShardLayout layout(plan, rank);
      memory.emplace_back(layout.bytes());
      shards.emplace_back(memory.back().data(), layout);
    }
    const auto q = Place(TensorKind::kQ, v1::TENSOR_Q, spec.heads * spec.head_dim, random);
    const auto k = Place(TensorKind::kK, v1::TENSOR_K, spec.kv_heads * spec.head_dim, random);
    const auto v = Place(TensorKind::kV, v1::TENSOR_V, spec.kv_heads * spec.value_dim, random);
    const std::vector<double> bias(bias_coords.begin(), bias_coords.end());
    expected = ReferenceAttention(spec, q, k, v, coords, bias).value();
  }

  std::vector<double> Place(TensorKind kind, v1::Tensor tensor, int64_t width,
                            std::mt19937_64& random) {
    const auto values = hilbert_ring::testing::RandomValues(spec.tokens * width, random);
    for (int64_t token = 0; token < spec.tokens; ++token) {
      const RowRun place = router.Find(tensor, token);
      std::byte* const row = shards[place.rank].Row(kind, place.local_row);
      for (int64_t i = 0; i < width; ++i) {
        StoreElement(spec.dtype, row, i, values[token * width + i]);
      }
    }
    return {values.begin(), values.end()};
  }

  v1::OutputChunk Chunk(v1::Tensor tensor, int64_t first, int64_t rows,
                        std::string& payload) const {
    v1::OutputChunk chunk;
    chunk.set_tensor(tensor);
    chunk.set_first_token(first);
    chunk.set_rows(rows);
    payload.clear();
    for (int64_t token = first; token < first + rows; ++token) Append(tensor, token, payload);
    return chunk;
  }

  void Append(v1::Tensor tensor, int64_t token, std::string& payload) const {
    const bool out = tensor == v1::TENSOR_OUT;
    const std::vector<double>& values = out ? expected.out : expected.lse;
    const int64_t width = out ? spec.heads * spec.value_dim : spec.heads;
    const DataType dtype = out ? spec.dtype : DataType::kFloat32;
    for (int64_t i = 0; i < width; ++i) {
      char bytes[sizeof(float)];
      StoreElement(dtype, bytes, 0, static_cast<float>(values[token * width + i]));
      payload.append(bytes, ElementBytes(dtype));
    }
  }

  const JobSpec spec;
  const std::vector<int64_t> coords;
  const std::vector<float> bias_coords;
  const std::shared_ptr<const Permutation> order;
  const Plan plan;
  const RowRouter router;
  std::vector<std::vector<std::byte>> memory;
  std::vector<HostShard> shards;
  ReferenceResult expected;
};

std::shared_ptr<const Member> Worker(const std::string& address) {
  auto member = std::make_shared<Member>();
  member->address = address;
  return member;
}

TEST(RowCheck, FindsTheWrongNumberAndItsSender) {
  std::mt19937_64 random(31);
  const auto a = Worker("a:1");
  const auto b = Worker("b:1");
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    const RandomJob job(random);
    RowCheck check(job.spec, kEveryRow, 0);
    EXPECT_EQ(check.rows(), 0);
    const int64_t half = job.spec.tokens / 2;
    std::string payload;
    v1::OutputChunk chunk = job.Chunk(v1::TENSOR_OUT, 0, half, payload);
    if (half > 0) check.Take(chunk, payload, a);
    chunk = job.Chunk(v1::TENSOR_OUT, 0, 0, payload);
    for (int64_t token = job.spec.tokens - 1; token >= half; --token) {
      chunk.add_tokens(token);
      job.Append(v1::TENSOR_OUT, token, payload);
    }
    check.Take(chunk, payload, b);
    EXPECT_EQ(check.rows(), job.spec.tokens);
    auto verdict = check.Compare(job.router, *job.order, job.shards, job.bias_coords, JobStop());
    ASSERT_TRUE(verdict.ok());
    EXPECT_EQ(verdict->judged, job.spec.tokens);
    EXPECT_EQ(verdict->not_judged, 0);
    ASSERT_FALSE(verdict->mismatch)
        << "token " << verdict->mismatch->deviation.token << " "
        << verdict->mismatch->deviation.actual << " " << verdict->mismatch->deviation.expected;

    const auto token = static_cast<int64_t>(random() % job.spec.tokens);
    const bool of_lse = random() % 2 == 0;
    chunk = job.Chunk(of_lse ? v1::TENSOR_LSE : v1::TENSOR_OUT, token, 1, payload);
    const int64_t element = of_lse ? sizeof(float) : ElementBytes(job.spec.dtype);
    const auto place = static_cast<int64_t>(random() % (payload.size() / element));
    StoreElement(of_lse ? DataType::kFloat32 : job.spec.dtype, payload.data(), place, 1000.0F);
    check.Take(chunk, payload, a);
    verdict = check.Compare(job.router, *job.order, job.shards, job.bias_coords, JobStop());
    ASSERT_TRUE(verdict.ok() && verdict->mismatch);
    const Deviation& off = verdict->mismatch->deviation;
    EXPECT_EQ(off.token, token);
    EXPECT_EQ(verdict->mismatch->tensor, chunk.tensor());
    EXPECT_EQ(of_lse ? off.head : off.head * job.spec.value_dim + off.dim, place);
    EXPECT_EQ(off.actual, 1000);
    EXPECT_EQ(verdict->mismatch->worker, a);
  }
}

TEST(RowCheck, LooksAtDrawnRowsAlone) {
  std::mt19937_64 random(32);
  auto drawn = std::make_unique<RandomJob>(random);
  while (drawn->spec.tokens < 20) drawn = std::make_unique<RandomJob>(random);
  const RandomJob& job = *drawn;
  RowCheck check(job.spec, 2, 0);  // the first row and the last
  std::string payload;
  const v1::OutputChunk chunk = job.Chunk(v1::TENSOR_OUT, 1, job.spec.tokens - 2, payload);
  std::fill(payload.begin(), payload.end(), '\x42');
  check.Take(chunk, payload, Worker("a:1"));
  const auto verdict =
      check.Compare(job.router, *job.order, job.shards, job.bias_coords, JobStop());
  ASSERT_TRUE(verdict.ok());
  EXPECT_FALSE(verdict->mismatch);
  EXPECT_EQ(check.rows(), 0);
  check.Take(job.Chunk(v1::TENSOR_OUT, 0, 1, payload), payload, Worker("a:1"));
  EXPECT_EQ(check.rows(), 1);
}

}  // namespace
}  // namespace hilbert_ring::server
