#include "server/rows/encode_comparison.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/return_if_error.h"
#include "engine/reference/encoder_reference.h"
#include "engine/spec/numbers.h"

namespace hilbert_ring::server {
namespace {

// The input of a layer, where the workers' shards have it.
class ShardSource final : public RowSource {
 public:
  explicit ShardSource(const OutputCheck::Execution& execution) : execution_(execution) {}
  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    const RowRun place = execution_.router.Find(v1::TENSOR_LAYER_INPUT, token);
    const std::byte* const row =
        execution_.shards[place.rank].Row(TensorKind::kLayerInput, place.local_row);
    LoadElements(DataType::kFloat32, row + first * static_cast<int64_t>(sizeof(float)), values);
  }

 private:
  const OutputCheck::Execution& execution_;
};

// Rows of one slide that were computed here.
class SlideSource final : public RowSource {
 public:
  SlideSource(int64_t first_token, const std::vector<std::vector<double>>& rows)
      : first_token_(first_token), rows_(rows) {}
  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    std::copy_n(rows_[token - first_token_].begin() + first, values.size(), values.begin());
  }

 private:
  const int64_t first_token_;
  const std::vector<std::vector<double>>& rows_;
};
class Comparison {
 public:
  using Execution = OutputCheck::Execution;
  using Verdict = OutputCheck::Verdict;

  Comparison(const EncodeDraw& draw, const EncodeAccount& account, ModelReader& model,
             const Execution& execution)
      : draw_(draw), job_(draw.job), account_(account), model_(model), execution_(execution) {}

  absl::StatusOr<Verdict> Run() {
    RETURN_IF_ERROR(Prepare());
    RETURN_IF_ERROR(draw_.layer > 0 ? OneLayer() : AllLayers());
    RETURN_IF_ERROR(model_.Read(execution_.stop, &EncoderFolder::CheckUnchanged));
    verdict_.not_judged = std::ssize(not_judged_);
    verdict_.judged = std::ssize(draw_.tokens) - verdict_.not_judged;
    verdict_.note = Note();
    return std::move(verdict_);
  }

 private:
  absl::Status Prepare() {
    for (const int64_t token : draw_.tokens) {
      for (int64_t state = 0; state <= job_.config.layers; ++state) {
        if (account_.states.contains({token, state})) continue;
        return absl::InternalError(absl::StrCat("worker ", WorkerOf(token)->address,
                                                " has not told state ", state, " of token ", token,
                                                ", which is to be checked"));
      }
    }
    ASSIGN_OR_RETURN(input_,
                     model_.Read(execution_.stop, [compute = job_.compute](const auto& model) {
                       return ReferenceInput::Load(model, compute);
                     }));
    const EncoderConfig& config = job_.config;
    if (config.output_norm && job_.outputs.final_norm == FinalNorm::kApplied) {
      ASSIGN_OR_RETURN(final_norm_, ReadNorm("encoder.layer_norm", config.layer_norm_eps));
    }
    if (job_.outputs.pooling != Pooling::kNone) {
      ASSIGN_OR_RETURN(pool_norm_, ReadNorm("norm", config.norm_eps));
    }
    ASSIGN_OR_RETURN(attention_, AttentionOf(config, job_.compute, job_.slide_tiles));
    return absl::OkStatus();
  }

  absl::StatusOr<LayerNorm> ReadNorm(const std::string& name, double epsilon) {
    return model_.Read(execution_.stop, [name, epsilon](const auto& model) {
      return LoadReferenceNorm(model, name, epsilon);
    });
  }

  absl::StatusOr<ReferenceLayer> ReadLayer(int64_t layer) {
    return model_.Read(execution_.stop, [layer, compute = job_.compute](const auto& model) {
      return ReferenceLayer::Load(model, layer, compute);
    });
  }

  const std::shared_ptr<const Member>& WorkerOf(int64_t token) const {
    return execution_.members[execution_.router.Find(v1::TENSOR_STATES, token).rank];
  }

  TwiceComputed InputOf(int64_t token) {
    if (draw_.rows.IsClassToken(token)) return input_->ClassToken();
    const RowRun place = execution_.router.Find(v1::TENSOR_STATES, token);
    const HostShard& shard = execution_.shards[place.rank];
    std::vector<double> tile(static_cast<size_t>(job_.config.tile_dim()));
    LoadElements(job_.dtype, shard.Row(TensorKind::kTiles, place.local_row), tile);
    std::array<double, 2> coords{};
    if (job_.config.position) {
      std::memcpy(coords.data(), shard.Row(TensorKind::kTileCoords, place.local_row),
                  sizeof(coords));
    }
    return input_->RowOf(tile, coords.data());
  }

  // spread: of the rows beside it. what: of the row of `token`, or of the slide whose class token
  // that is.
  void Judge(const TwiceComputed& expected, double spread, std::span<const float> actual,
             int64_t token, const std::string& what) {
    if (!expected.finite()) {
      if (draw_.Has(token)) not_judged_.insert(token);  // a slide's first token need not be
      return;
    }
    const TwiceComputed::Worst worst = expected.Compare(actual, spread);
    if (worst.excess <= excess_) return;
    excess_ = worst.excess;
    if (excess_ <= 1) return;
    verdict_.mismatch = {.what = absl::StrCat(what, ", dim ", worst.dim, " is ", worst.actual,
                                              ", computed again in float64 it is ", worst.expected,
                                              " and may be off by ", worst.tolerance),
                         .worker = WorkerOf(token)};
  }

  // Drawn rows of one state, and their tokens.
  struct State {
    std::vector<TwiceComputed> rows;
    std::vector<int64_t> tokens;
  };

  void JudgeStates(const State& drawn, double spread, int64_t state) {
    for (size_t i = 0; i < drawn.rows.size(); ++i) {
      const int64_t token = drawn.tokens[i];
      Judge(drawn.rows[i], spread, account_.states.at({token, state}), token,
            absl::StrCat("state ", state, " of token ", token));
    }
  }

  // What the client gets of them, as far as it is a row's.
  void JudgeSent(const State& drawn, int64_t state) {
    std::vector<TwiceComputed> normed;
    for (const TwiceComputed& row : drawn.rows) normed.push_back(Normed(final_norm_, row));
    const double spread = Spread(normed);
    for (size_t i = 0; i < normed.size(); ++i) {
      const int64_t token = drawn.tokens[i];
      for (const int64_t place : PlacesOf(state)) {
        const auto sent = account_.sent.find({token, place});
        if (sent == account_.sent.end()) continue;
        Judge(normed[i], spread, sent->second, token,
              absl::StrCat("STATES of token ", token, ", state ", state));
      }
      if (job_.outputs.pooling == Pooling::kClass && draw_.rows.IsClassToken(token)) {
        JudgePooled(normed[i], draw_.rows.SlideOf(token), state);
      }
    }
  }

  // row: of the class token, or the mean.
  void JudgePooled(const TwiceComputed& row, int64_t slide, int64_t state) {
    for (const int64_t place : PlacesOf(state)) {
      const auto pooled = account_.pooled.find({slide, place});
      if (pooled == account_.pooled.end()) continue;
      Judge(Normed(pool_norm_, row), 0, pooled->second, draw_.rows.FirstToken(slide),
            absl::StrCat("POOLED of slide ", slide, ", state ", state));
    }
  }

  // Among the wanted states; empty: the state is not wanted.
  std::vector<int64_t> PlacesOf(int64_t state) const {
    const std::vector<int64_t>& states = job_.outputs.states;
    std::vector<int64_t> places;
    for (int64_t place = 0; place < std::ssize(states); ++place) {
      if (states[place] == state) places.push_back(place);
    }
    return places;
  }

  TwiceComputed Normed(const std::optional<LayerNorm>& norm, const TwiceComputed& row) {
    if (!norm) return row;
    TwiceComputed normed{.exact = ReferenceNorm(*norm, row.exact), .moved = row.moved};
    const double rounding = Rounding::Of(job_.compute).float32;
    MoveAtRandom(normed.moved, rounding, random_);
    normed.moved = ReferenceNorm(*norm, normed.moved);
    MoveAtRandom(normed.moved, rounding, random_);
    return normed;
  }

  TwiceComputed Told(int64_t token, int64_t state) const {
    const std::vector<float>& values = account_.states.at({token, state});
    const std::vector<double> row(values.begin(), values.end());
    return {.exact = row, .moved = row};
  }

  absl::Status OneLayer() {
    ASSIGN_OR_RETURN(auto layer, ReadLayer(draw_.layer));
    const ShardSource source(execution_);
    State first, before, after;
    first.tokens = before.tokens = after.tokens = draw_.tokens;
    for (const int64_t token : draw_.tokens) {
      RETURN_IF_ERROR(execution_.stop.why());
      first.rows.push_back(InputOf(token));
      std::vector<double> row(static_cast<size_t>(job_.config.embed_dim));
      source.Read(token, 0, row);
      before.rows.push_back({.exact = row, .moved = row});
      after.rows.push_back({.exact = layer.Exact(attention_, execution_.order, token, source),
                            .moved = layer.Moved(attention_, execution_.order, token, source)});
    }
    JudgeStates(first, Spread(first.rows), 0);
    JudgeStates(before, 0, draw_.layer - 1);
    JudgeStates(after, Spread(after.rows), draw_.layer);
    const std::set<int64_t> wanted(job_.outputs.states.begin(), job_.outputs.states.end());
    for (const int64_t state : wanted) {
      State told{.tokens = draw_.tokens};
      for (const int64_t token : told.tokens) told.rows.push_back(Told(token, state));
      JudgeSent(told, state);
    }
    return absl::OkStatus();
  }

  // A slide's rows as they are now.
  struct Rows {
    std::vector<std::vector<double>> exact, moved;
    TwiceComputed operator[](int64_t i) const { return {.exact = exact[i], .moved = moved[i]}; }
  };

  absl::Status AllLayers() {
    std::map<int64_t, Rows> slides;
    for (const int64_t slide : draw_.slides) {
      for (int64_t token = FirstToken(slide); token < FirstToken(slide + 1); ++token) {
        TwiceComputed row = InputOf(token);
        slides[slide].exact.push_back(std::move(row.exact));
        slides[slide].moved.push_back(std::move(row.moved));
      }
      JudgeSlide(slides[slide], slide, 0);
    }
    for (int64_t i = 1; i <= job_.config.layers; ++i) {
      ASSIGN_OR_RETURN(auto layer, ReadLayer(i));
      for (auto& [slide, rows] : slides) {
        const int64_t first = FirstToken(slide);
        Rows after;
        for (int64_t token = first; token < FirstToken(slide + 1); ++token) {
          RETURN_IF_ERROR(execution_.stop.why());
          after.exact.push_back(
              layer.Exact(attention_, execution_.order, token, SlideSource(first, rows.exact)));
          after.moved.push_back(
              layer.Moved(attention_, execution_.order, token, SlideSource(first, rows.moved)));
        }
        rows = std::move(after);
        JudgeSlide(rows, slide, i);
      }
    }
    return absl::OkStatus();
  }

  int64_t FirstToken(int64_t slide) const { return draw_.rows.FirstToken(slide); }

  void JudgeSlide(const Rows& rows, int64_t slide, int64_t state) {
    const int64_t first = FirstToken(slide), end = FirstToken(slide + 1);
    const bool wanted = !PlacesOf(state).empty();
    State drawn;
    std::vector<TwiceComputed> all;
    for (int64_t token = first; token < end; ++token) {
      all.push_back(rows[token - first]);
      if (!draw_.Has(token)) continue;
      drawn.rows.push_back(all.back());
      drawn.tokens.push_back(token);
    }
    JudgeStates(drawn, Spread(all), state);
    if (wanted) JudgeSent(drawn, state);
    if (!wanted || job_.outputs.pooling != Pooling::kMean) return;
    const int64_t tiles = end - first - draw_.rows.class_tokens();
    TwiceComputed mean{.exact = std::vector<double>(static_cast<size_t>(job_.config.embed_dim)),
                       .moved = std::vector<double>(static_cast<size_t>(job_.config.embed_dim))};
    for (int64_t i = end - first - tiles; i < end - first; ++i) {
      const TwiceComputed row = Normed(final_norm_, rows[i]);
      for (size_t x = 0; x < mean.exact.size(); ++x) {
        mean.exact[x] += row.exact[x] / static_cast<double>(tiles);
        mean.moved[x] += row.moved[x] / static_cast<double>(tiles);
      }
    }
    JudgePooled(mean, slide, state);
  }

  std::string Note() const {
    const std::string rows =
        absl::StrCat("--check-rows: ", std::ssize(draw_.tokens), " rows were computed again");
    const std::string off = absl::StrCat("; the number that is furthest off is at ",
                                         absl::SixDigits(excess_), " of what it may be");
    if (draw_.layer == 0) {
      return absl::StrCat(rows, " through all ", job_.config.layers, " layers", off, Unchecked());
    }
    return absl::StrCat(
        rows, " from their tiles to the first layer, through layer ", draw_.layer, " of ",
        job_.config.layers, " from its input at the workers",
        job_.outputs.pooling == Pooling::kMean ? "" : ", and from their last states on", off,
        Unchecked());
  }

  // Of what the client gets.
  std::string Unchecked() const {
    std::vector<std::string> outputs;
    if (draw_.layer > 0 && job_.outputs.pooling == Pooling::kMean) {
      outputs.push_back("means of slides");
    }
    if (job_.outputs.attention_map) outputs.push_back("the attention map");
    return outputs.empty() ? "" : absl::StrCat("; not checked: ", absl::StrJoin(outputs, ", "));
  }

  const EncodeDraw& draw_;
  const EncodeJob& job_;
  const EncodeAccount& account_;
  ModelReader& model_;
  const Execution& execution_;
  std::optional<ReferenceInput> input_;
  std::optional<LayerNorm> final_norm_, pool_norm_;
  JobSpec attention_;
  std::set<int64_t> not_judged_;
  double excess_ = 0;
  std::mt19937_64 random_{1};
  Verdict verdict_;
};

}  // namespace

absl::StatusOr<OutputCheck::Verdict> CompareRows(const EncodeDraw& draw,
                                                 const EncodeAccount& account, ModelReader& model,
                                                 const OutputCheck::Execution& execution) {
  return Comparison(draw, account, model, execution).Run();
}

}  // namespace hilbert_ring::server
