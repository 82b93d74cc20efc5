#include "server/rows/encode_check.h"

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/encoder_case.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kAllRows = int64_t{1} << 20;

// A number of a state that is off by `by`.
struct Wrong {
  int64_t token = -1, state = -1;
  float by = 0;
};

// A golden case over two workers, as they would tell and send it.
class EncodeCheckTest : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  void Make(Pooling pooling, int64_t rows = kAllRows, uint64_t seed = 3) {
    shards_.clear();
    memory_.clear();
    members_.clear();
    golden_ = *testing::LoadEncoderCase(std::get<0>(GetParam()));
    EncoderFolder folder = *EncoderFolder::Open(golden_.folder, digests_);
    job_ = {.config = folder.config(), .slide_tiles = golden_.slide_tiles};
    job_.outputs = {.states = {job_.config.layers, 0, job_.config.layers},
                    .final_norm = FinalNorm::kSkipped,
                    .pooling = pooling};
    const bool all_layers = std::get<1>(GetParam());
    check_ = std::make_unique<EncodeCheck>(
        job_,
        std::make_unique<ModelReader>(std::move(folder), FileSteps(start_), ModelReader::Limits{}),
        EncodeCheckOptions{.rows = rows, .seed = seed, .most_products = all_layers ? 1e18 : 0});
    EXPECT_EQ(check_->layer() == 0, all_layers);
    job_.checked_layer = check_->layer();
    plan_ = PlanOfJob(job_, *MakeEncoderPlan(job_.config, job_.compute, job_.slide_tiles, 2), 1);
    const auto slides =
        std::make_shared<SlideRows>(job_.slide_tiles, job_.config.class_token ? 1 : 0);
    router_.emplace(JobShape(plan_.spec, RowSizesOf(job_), slides), plan_.shards, nullptr);
    order_ = *Permutation::Make(plan_.spec, {});
    for (int rank = 0; rank < 2; ++rank) {
      const ShardLayout layout(plan_, rank);
      memory_.emplace_back(layout.bytes());
      shards_.emplace_back(memory_.back().data(), layout);
      members_.push_back(std::make_shared<Member>());
    }
    Place(TensorKind::kTiles, job_.config.tile_dim(), golden_.tiles, *slides);
    if (job_.config.position) Place(TensorKind::kTileCoords, 2, golden_.coords, *slides);
    for (int64_t token = 0; token < tokens() && job_.checked_layer > 0; ++token) {
      std::memcpy(LayerInput(token), Golden(job_.checked_layer - 1, token), RowBytes());
    }
  }

  template <typename T>
  void Place(TensorKind kind, int64_t dim, const std::vector<T>& values, const SlideRows& slides) {
    for (const TileRun& run : slides.RunsOf(0, slides.tiles())) {
      for (int64_t i = 0; i < run.tiles; ++i) {
        const RowRun place = router_->Find(v1::TENSOR_STATES, run.first_token + i);
        std::memcpy(shards_[place.rank].Row(kind, place.local_row),
                    values.data() + (run.first_tile + i) * dim, dim * sizeof(T));
      }
    }
  }

  int64_t tokens() const { return plan_.spec.tokens; }
  int64_t dim() const { return job_.config.embed_dim; }
  size_t RowBytes() const { return static_cast<size_t>(dim()) * sizeof(float); }
  float* LayerInput(int64_t token) {
    const RowRun place = router_->Find(v1::TENSOR_LAYER_INPUT, token);
    return reinterpret_cast<float*>(
        shards_[place.rank].Row(TensorKind::kLayerInput, place.local_row));
  }
  const float* Golden(int64_t state, int64_t token) const {
    return golden_.states.data() + (state * tokens() + token) * dim();
  }

  // States of every token that is drawn.
  void Tell(const Wrong& wrong = {}) {
    check_->BeginExecution();
    for (const int64_t token : check_->tokens()) {
      for (int64_t state = 0; state <= job_.config.layers; ++state) {
        v1::CheckedState told;
        std::vector<float> row(Golden(state, token), Golden(state, token) + dim());
        if (token == wrong.token && state == wrong.state) row[dim() / 2] += wrong.by;
        told.set_token(token);
        told.set_state(state);
        told.set_values(row.data(), RowBytes());
        ASSERT_TRUE(check_->TakeState(told).ok());
      }
    }
  }

  // Rows [0, count) of the wanted states.
  void Send(v1::Tensor tensor, const std::vector<float>& rows, int64_t place = -1, float by = 0) {
    v1::OutputChunk chunk;
    chunk.set_tensor(tensor);
    chunk.set_rows(std::ssize(rows) / std::ssize(job_.outputs.states) / dim());
    std::vector<float> sent = rows;
    if (place >= 0) sent[place] += by;
    check_->Take(chunk, {reinterpret_cast<const char*>(sent.data()), sent.size() * sizeof(float)},
                 nullptr);
  }
  std::vector<float> StatesSent() const {
    std::vector<float> rows;
    for (int64_t token = 0; token < tokens(); ++token) {
      for (const int64_t state : job_.outputs.states) {
        rows.insert(rows.end(), Golden(state, token), Golden(state, token) + dim());
      }
    }
    return rows;
  }
  // pooled: [slides, layers + 1, dim].
  std::vector<float> PooledSent(const std::vector<float>& pooled) const {
    std::vector<float> rows;
    for (int64_t slide = 0; slide < std::ssize(job_.slide_tiles); ++slide) {
      for (const int64_t state : job_.outputs.states) {
        const auto row = pooled.begin() + (slide * (job_.config.layers + 1) + state) * dim();
        rows.insert(rows.end(), row, row + dim());
      }
    }
    return rows;
  }

  absl::StatusOr<OutputCheck::Verdict> Compare() const { return Compare(stop_); }
  absl::StatusOr<OutputCheck::Verdict> Compare(const JobStop& stop) const {
    return check_->Compare({.router = *router_,
                            .order = *order_,
                            .shards = shards_,
                            .members = members_,
                            .stop = stop});
  }
  void ExpectRight() const {
    const auto verdict = Compare();
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_FALSE(verdict->mismatch) << verdict->mismatch->what;
    EXPECT_EQ(verdict->judged, tokens());
    EXPECT_EQ(verdict->not_judged, 0);
    EXPECT_THAT(verdict->note, HasSubstr(check_->layer() > 0 ? "through layer " : "through all "));
  }
  void ExpectWrong(const std::string& what, int64_t token) const {
    const auto verdict = Compare();
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    ASSERT_TRUE(verdict->mismatch) << verdict->note;
    EXPECT_THAT(verdict->mismatch->what, HasSubstr(what));
    EXPECT_EQ(verdict->mismatch->worker, members_[router_->Find(v1::TENSOR_STATES, token).rank]);
  }

  testing::EncoderCase golden_;
  FileDigests digests_;
  ThreadStarter start_ = StartThread;  // of steps
  EncodeJob job_;
  std::unique_ptr<EncodeCheck> check_;
  Plan plan_;
  std::optional<RowRouter> router_;
  std::shared_ptr<const Permutation> order_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<HostShard> shards_;
  Members members_;
  JobStop stop_;
};

TEST_P(EncodeCheckTest, AStateThatIsOffIsFound) {
  Make(Pooling::kNone);
  Tell();
  ExpectRight();
  for (const int64_t state : {int64_t{0}, std::max<int64_t>(1, check_->layer())}) {
    const int64_t token = tokens() - 1 - state;
    Tell({.token = token, .state = state, .by = 0.01F});
    ExpectWrong("state " + std::to_string(state) + " of token " + std::to_string(token), token);
  }
}

TEST_P(EncodeCheckTest, ASentRowThatIsOffIsFound) {
  Make(Pooling::kNone);
  Tell();
  Send(v1::TENSOR_STATES, StatesSent());
  ExpectRight();
  const int64_t token = tokens() / 2;
  // The first of the places of a state that repeats.
  Send(v1::TENSOR_STATES, StatesSent(), 3 * token * dim() + 1, -0.01F);
  ExpectWrong("STATES of token " + std::to_string(token), token);
}

TEST_P(EncodeCheckTest, APooledVectorThatIsOffIsFound) {
  for (const Pooling pooling : {Pooling::kClass, Pooling::kMean}) {
    Make(pooling);
    if (golden_.class_states.empty()) return;
    const std::vector<float> pooled =
        PooledSent(pooling == Pooling::kClass ? golden_.class_states : golden_.mean_states);
    Tell();
    Send(v1::TENSOR_POOLED, pooled);
    ExpectRight();
    if (pooling == Pooling::kMean && check_->layer() > 0) return;  // of a few rows it is not known
    Send(v1::TENSOR_POOLED, pooled, std::ssize(pooled) - 1, 0.01F);
    const int64_t slide = std::ssize(job_.slide_tiles) - 1;
    ExpectWrong("POOLED of slide " + std::to_string(slide),
                SlideRows(job_.slide_tiles, 1).FirstToken(slide));
  }
}

TEST_P(EncodeCheckTest, ItsNoteSaysWhatWasNotChecked) {
  for (const Pooling pooling : {Pooling::kNone, Pooling::kMean}) {
    Make(pooling);
    if (pooling == Pooling::kMean && golden_.mean_states.empty()) continue;
    Tell();
    const auto verdict = Compare();
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    const bool unchecked = pooling == Pooling::kMean && check_->layer() > 0;
    EXPECT_EQ(absl::StrContains(verdict->note, "; not checked: means of slides"), unchecked);
    EXPECT_EQ(absl::StrContains(verdict->note, "from their last states on"),
              check_->layer() > 0 && pooling == Pooling::kNone);
  }
}

// Whatever a row sees is part of it.
TEST_P(EncodeCheckTest, AnInputThatIsOffIsFound) {
  Make(Pooling::kNone);
  Tell();
  Send(v1::TENSOR_STATES, StatesSent());
  const int64_t token = tokens() - 1;
  if (check_->layer() > 0) {
    LayerInput(token)[0] += 0.01F;
  } else {
    const RowRun place = router_->Find(v1::TENSOR_STATES, token);
    reinterpret_cast<float*>(shards_[place.rank].Row(TensorKind::kTiles, place.local_row))[0] += 1;
  }
  const auto verdict = Compare();
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_TRUE(verdict->mismatch);
}

TEST_P(EncodeCheckTest, ARowThatIsNotFiniteIsNotJudged) {
  Make(Pooling::kNone);
  Tell();
  const RowRun place = router_->Find(v1::TENSOR_STATES, tokens() - 1);
  reinterpret_cast<float*>(shards_[place.rank].Row(TensorKind::kTiles, place.local_row))[0] =
      std::numeric_limits<float>::quiet_NaN();
  const auto verdict = Compare();
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_GE(verdict->not_judged, 1);
  EXPECT_EQ(verdict->judged + verdict->not_judged, tokens());
}

// A mean is that of rows which were not drawn: they do not count.
TEST_P(EncodeCheckTest, AMeanThatIsNotFiniteIsOfNoRowThatWasNotDrawn) {
  const bool all_layers = std::get<1>(GetParam());
  Make(Pooling::kMean);
  if (!all_layers || golden_.mean_states.empty()) return;
  const SlideRows slides(job_.slide_tiles, 1);
  for (uint64_t seed = 0;; ++seed) {
    Make(Pooling::kMean, 1, seed);
    if (!slides.IsClassToken(check_->tokens().front())) break;
  }
  Tell();
  Send(v1::TENSOR_POOLED, PooledSent(golden_.mean_states));
  const int64_t slide = slides.SlideOf(check_->tokens().front());
  const RowRun place = router_->Find(v1::TENSOR_STATES, slides.FirstToken(slide) + 1);
  reinterpret_cast<float*>(shards_[place.rank].Row(TensorKind::kTiles, place.local_row))[0] =
      std::numeric_limits<float>::quiet_NaN();
  const auto verdict = Compare();
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  EXPECT_GE(verdict->judged, 0);
  EXPECT_LE(verdict->not_judged, 1);
  EXPECT_EQ(verdict->judged + verdict->not_judged, 1);
}

TEST_P(EncodeCheckTest, WorkersTellWhatWasAskedForOnce) {
  Make(Pooling::kNone);
  EXPECT_TRUE(absl::IsInternal(Compare().status())) << Compare().status();
  Tell();
  v1::CheckedState told;
  told.set_values(std::string(RowBytes(), 'x'));
  EXPECT_TRUE(absl::IsInternal(check_->TakeState(told)));  // twice
  check_->BeginExecution();
  EXPECT_TRUE(check_->TakeState(told).ok());
  told.set_state(job_.config.layers + 1);
  EXPECT_TRUE(absl::IsInternal(check_->TakeState(told)));
  told.set_state(1);
  told.set_token(tokens());
  EXPECT_TRUE(absl::IsInternal(check_->TakeState(told)));
  told.set_token(0);
  told.set_values("short");
  EXPECT_TRUE(absl::IsInternal(check_->TakeState(told)));
}

TEST_P(EncodeCheckTest, StopsWithTheJob) {
  Make(Pooling::kNone);
  Tell();
  stop_.Request(absl::CancelledError("by the caller"));
  EXPECT_TRUE(absl::IsCancelled(Compare().status()));
}

// Whichever of its steps hangs: that ends when its file system answers, on what is its own.
TEST_P(EncodeCheckTest, AModelWhoseFileSystemDoesNotAnswerIsLeft) {
  int begun = 0, hung = -1;
  std::unique_ptr<absl::Notification> answer, ended;
  std::unique_ptr<JobStop> stop;
  start_ = [&](std::function<void()> step) {
    if (begun++ != hung) return StartThread(std::move(step));
    stop->Request(absl::CancelledError("by the caller"));
    return StartThread([&, step = std::move(step)] {
      answer->WaitForNotification();
      step();
      ended->Notify();
    });
  };
  Make(Pooling::kNone);
  Tell();
  ExpectRight();
  const int steps = begun;
  EXPECT_EQ(steps, 2 + (check_->layer() > 0 ? 1 : job_.config.layers))
      << "the input, each layer that is computed, and whether the model has changed";
  for (hung = 0; hung < steps; ++hung) {
    answer = std::make_unique<absl::Notification>();
    ended = std::make_unique<absl::Notification>();
    stop = std::make_unique<JobStop>();
    check_.reset();
    begun = 0;
    Make(Pooling::kNone);
    Tell();
    const absl::Status compared = Compare(*stop).status();
    EXPECT_TRUE(absl::IsCancelled(compared)) << compared;
    check_.reset();
    answer->Notify();
    ended->WaitForNotification();
  }
}

// The rows of the large case take minutes.
std::vector<std::string> SmallCases() {
  std::vector<std::string> names = testing::EncoderCaseNames();
  std::erase(names, "slide_published_pattern");
  return SpreadOf(names, AtDepth(1, 3, 9));
}

INSTANTIATE_TEST_SUITE_P(Cases, EncodeCheckTest,
                         ::testing::Combine(::testing::ValuesIn(SmallCases()), ::testing::Bool()),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "_all" : "_one");
                         });

}  // namespace
}  // namespace hilbert_ring::server
