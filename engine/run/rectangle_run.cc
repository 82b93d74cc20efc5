#include "engine/run/rectangle_run.h"

#include <algorithm>
#include <limits>

#include "engine/base/return_if_error.h"
#include "engine/run/rectangle_tasks.h"

namespace hilbert_ring {
namespace {

class RectangleRun {
 public:
  explicit RectangleRun(RankRun& run)
      : run_(run),
        plan_(run.plan()),
        spec_(run.spec()),
        rectangle_(*plan_.rectangle),
        workers_(plan_.shards.workers()) {}

  absl::Status Run() {
    RETURN_IF_ERROR(Prepare());
    const bool travels = workers_ > 1 && rectangle_.rounds > 0;
    if (travels) RETURN_IF_ERROR(PostRound(0));
    RETURN_IF_ERROR(Compute({&own_queries_, 1}, {&own_keys_, 1}));
    for (int64_t round = 0; travels && round < rectangle_.rounds; ++round) {
      RETURN_IF_ERROR(rectangle_.travels == Travels::kKeys ? ComputeKeys(round)
                                                           : ComputeQueries(round));
    }
    for (const std::vector<MergeTask>& of_branch : RectangleZeroKeys(plan_, own_queries_)) {
      RETURN_IF_ERROR(run_.Merge(of_branch));
    }
    return Finish();
  }

 private:
  static constexpr int64_t kNumberBytes = sizeof(int64_t);

  absl::Status Prepare() {
    const int64_t queries = run_.store().rows(TensorKind::kQ);
    const int64_t keys = run_.store().rows(TensorKind::kK);
    RETURN_IF_ERROR(run_.Prepare(NeedsPositions(spec_) ? queries * kNumberBytes : 0));
    RETURN_IF_ERROR(run_.AwaitRows(run_.store().rows()));
    const std::span<const int64_t> numbers = run_.store().tokens();
    float* const sums = run_.accumulators();
    own_queries_ = {.rows = rectangle_.QueriesOf(run_.rank()),
                    .q = run_.store().Row(TensorKind::kQ, 0),
                    .out = spec_.dtype == DataType::kFloat32
                               ? reinterpret_cast<float*>(run_.store().Row(TensorKind::kOut, 0))
                               : sums + queries * spec_.heads,
                    .max = reinterpret_cast<float*>(run_.store().Row(TensorKind::kLse, 0)),
                    .sum = sums,
                    .positions = reinterpret_cast<int64_t*>(run_.others())};
    if (QueriesCarrySlots(spec_)) own_queries_.slots = numbers.subspan(keys);
    own_keys_ = {.rows = RowsOfRank(plan_.shards, run_.rank()),
                 .k = run_.store().Row(TensorKind::kK, 0),
                 .v = run_.store().Row(TensorKind::kV, 0),
                 .tokens = run_.store().device_tokens()};
    if (BiasAxes(spec_) > 0) {
      own_keys_.coordinates = Coordinates(run_.store().Row(TensorKind::kBiasCoords, 0));
      own_queries_.coordinates = Coordinates(run_.store().Row(TensorKind::kBiasCoords, keys));
    }
    return FillPositions(own_queries_, reinterpret_cast<int64_t*>(run_.others()));
  }

  static const float* Coordinates(const std::byte* row) {
    return reinterpret_cast<const float*>(row);
  }

  absl::Status FillPositions(const QueryBlock& block, int64_t* positions) {
    if (!NeedsPositions(spec_)) return absl::OkStatus();
    for (const SequencePair& pair :
         PairsWith(rectangle_.pairs, &SequencePair::queries, block.rows)) {
      const Rows rows =
          Overlap(block.rows, {pair.queries.begin, pair.queries.begin + pair.queries.length});
      if (rows.count() == 0) continue;
      RETURN_IF_ERROR(run_.device().FillSequence(positions + rows.begin - block.rows.begin,
                                                 rows.count(), PositionOf(pair, rows.begin)));
    }
    return absl::OkStatus();
  }

  // Some sequences at a time, because each has its own tasks.
  absl::Status Compute(std::span<const QueryBlock> queries, std::span<const KeyRows> keys) {
    const size_t most_pairs = std::max<size_t>(1, kMostTasks / spec_.kv_heads);
    if (rectangle_.pairs.size() <= most_pairs) {
      return run_.Compute(RectangleTasks(plan_, queries, keys, run_.slopes()));
    }
    for (const QueryBlock& block : queries) {
      int64_t begin = block.rows.begin;
      auto pairs = PairsWith(rectangle_.pairs, &SequencePair::queries, block.rows);
      while (!pairs.empty()) {
        const auto some = pairs.first(std::min(pairs.size(), most_pairs));
        pairs = pairs.subspan(some.size());
        const int64_t end = pairs.empty() ? block.rows.end : pairs.front().queries.begin;
        if (begin == end) continue;  // without queries
        const QueryBlock part = PartOf(block, {begin, end});
        begin = end;
        RETURN_IF_ERROR(run_.Compute(RectangleTasks(plan_, {&part, 1}, keys, run_.slopes())));
      }
    }
    return absl::OkStatus();
  }

  QueryBlock PartOf(const QueryBlock& block, const Rows& rows) const {
    const int64_t first = rows.begin - block.rows.begin;
    const int64_t states = first * spec_.heads;
    QueryBlock part = block;
    part.rows = rows;
    part.q += first * RowBytes(spec_, TensorKind::kQ);
    part.out += states * spec_.value_dim;
    part.max += states;
    part.sum += states;
    if (part.positions != nullptr) part.positions += first;
    if (!part.slots.empty()) part.slots = part.slots.subspan(first, rows.count());
    if (part.coordinates != nullptr) part.coordinates += first * BiasAxes(spec_);
    return part;
  }

  Rows Travelling(int from, int to, int64_t round) const {
    return TravellingRows(rectangle_, plan_.shards, from, to, round);
  }

  RoundBuffers Buffers(int64_t round) const {
    return RoundBuffersOf(spec_, rectangle_, plan_.shards, run_.rank(),
                          static_cast<int>(round % 2));
  }

  // The first step of a round.
  int64_t StepOf(int64_t round) const {
    return (rectangle_.travels == Travels::kKeys ? round : 2 * round) + 1;
  }

  // A part of a travelling row: a tensor's, or the slot.
  struct Part {
    const void* rows = nullptr;  // own ones, from the shard's first
    int64_t row_bytes = 0;
    int64_t packed = 0;  // offsets of the part's rows: own ones, and a peer's
    std::vector<int64_t> arrived;
  };

  // The parts of the rows that travel in a round.
  std::vector<Part> PartsOf(int64_t round) const {
    const RoundBuffers buffers = Buffers(round);
    const Rows own = Travelling(run_.rank(), run_.rank(), round);
    std::vector<Part> parts;
    const auto add = [&](const void* rows, int64_t row_bytes, int64_t packed, const auto& arrived) {
      Part& part = parts.emplace_back(Part{rows, row_bytes, packed, {}});
      for (int peer = 0; peer < workers_; ++peer) part.arrived.push_back(arrived(peer));
    };
    const auto tensor = [&](TensorKind kind) { return run_.store().Row(kind, 0); };
    const int64_t coordinates = RowBytes(spec_, TensorKind::kBiasCoords);
    if (rectangle_.travels == Travels::kKeys) {
      const int64_t k_row = RowBytes(spec_, TensorKind::kK);
      add(tensor(TensorKind::kK), k_row, buffers.packed,
          [&](int peer) { return buffers.peers[peer].rows; });
      add(tensor(TensorKind::kV), RowBytes(spec_, TensorKind::kV),
          buffers.packed + own.count() * k_row, [&](int peer) {
            return buffers.peers[peer].rows + Travelling(peer, run_.rank(), round).count() * k_row;
          });
      if (coordinates > 0) {
        const int64_t kv_row = k_row + RowBytes(spec_, TensorKind::kV);
        add(own_keys_.coordinates, coordinates, buffers.packed + own.count() * kv_row,
            [&](int peer) {
              return buffers.peers[peer].rows +
                     Travelling(peer, run_.rank(), round).count() * kv_row;
            });
      }
      return parts;
    }
    add(tensor(TensorKind::kQ), RowBytes(spec_, TensorKind::kQ), buffers.packed,
        [&](int peer) { return buffers.peers[peer].rows; });
    if (QueriesCarrySlots(spec_)) {
      add(run_.store().device_tokens() + own_keys_.rows.count(), kNumberBytes, buffers.packed_slots,
          [&](int peer) { return buffers.peers[peer].slots; });
    }
    if (coordinates > 0) {
      add(own_queries_.coordinates, coordinates, buffers.packed_coordinates,
          [&](int peer) { return buffers.peers[peer].coordinates; });
    }
    return parts;
  }

  struct Transfers {
    std::vector<BlockTransfer> sends, receives;
  };

  Transfers TransfersOf(int64_t round) const {
    Transfers transfers;
    const Rows own = Travelling(run_.rank(), run_.rank(), round);
    for (const Part& part : PartsOf(round)) {
      for (int peer = 0; peer < workers_; ++peer) {
        if (peer == run_.rank()) continue;
        if (const Rows to = Travelling(run_.rank(), peer, round); to.count() > 0) {
          transfers.sends.push_back(
              {.peer = peer,
               .offset = part.packed + (to.begin - own.begin) * part.row_bytes,
               .bytes = to.count() * part.row_bytes});
        }
        if (const Rows from = Travelling(peer, run_.rank(), round); from.count() > 0) {
          transfers.receives.push_back(
              {.peer = peer, .offset = part.arrived[peer], .bytes = from.count() * part.row_bytes});
        }
      }
    }
    return transfers;
  }

  absl::Status PostRound(int64_t round) {
    if (round >= rectangle_.rounds) return absl::OkStatus();
    const Rows own = Travelling(run_.rank(), run_.rank(), round);
    const int64_t first =
        own.begin -
        (rectangle_.travels == Travels::kKeys ? own_keys_.rows.begin : own_queries_.rows.begin);
    if (own.count() > 0) {
      std::vector<PackTask> tasks;
      for (const Part& part : PartsOf(round)) {
        tasks.push_back({.from = static_cast<const std::byte*>(part.rows) + first * part.row_bytes,
                         .rows = own.count(),
                         .row_stride = part.row_bytes,
                         .head_stride = part.row_bytes,
                         .head_bytes = part.row_bytes,
                         .to = run_.arena() + part.packed});
      }
      RETURN_IF_ERROR(run_.Pack(tasks));
      for (const Part& part : PartsOf(round)) {
        RETURN_IF_ERROR(run_.Offer(part.packed, own.count() * part.row_bytes));
      }
    }
    const Transfers transfers = TransfersOf(round);
    return run_.Post(StepOf(round), transfers.sends, transfers.receives);
  }

  absl::Status WaitRound(int64_t round) {
    const Transfers transfers = TransfersOf(round);
    return run_.Wait(StepOf(round), transfers.sends, transfers.receives);
  }

  absl::Status ComputeKeys(int64_t round) {
    RETURN_IF_ERROR(WaitRound(round));
    RETURN_IF_ERROR(PostRound(round + 1));
    const std::vector<Part> parts = PartsOf(round);
    std::vector<KeyRows> keys;
    for (int peer = 0; peer < workers_; ++peer) {
      const Rows rows = Travelling(peer, run_.rank(), round);
      if (peer == run_.rank() || rows.count() == 0) continue;
      KeyRows& arrived = keys.emplace_back();
      arrived = {.rows = rows,
                 .k = run_.arena() + parts[0].arrived[peer],
                 .v = run_.arena() + parts[1].arrived[peer]};
      if (BiasAxes(spec_) > 0) {
        arrived.coordinates = Coordinates(run_.arena() + parts[2].arrived[peer]);
      }
    }
    return Compute({&own_queries_, 1}, keys);
  }

  // A block of partial results of `rows` at `offset` of the arena: out, maxima, sums.
  QueryBlock Partials(const Rows& rows, int64_t offset) {
    auto* const out = reinterpret_cast<float*>(run_.arena() + offset);
    float* const max = out + rows.count() * spec_.heads * spec_.value_dim;
    return {.rows = rows, .out = out, .max = max, .sum = max + rows.count() * spec_.heads};
  }

  absl::Status ComputeQueries(int64_t round) {
    RETURN_IF_ERROR(WaitRound(round));
    const RoundBuffers buffers = Buffers(0);
    std::vector<QueryBlock> blocks;
    std::vector<std::vector<int64_t>> slots(workers_);
    Transfers back;
    for (int peer = 0; peer < workers_; ++peer) {
      if (peer == run_.rank()) continue;
      const RoundBuffers::Peer& at = buffers.peers[peer];
      if (const Rows rows = Travelling(run_.rank(), peer, round); rows.count() > 0) {
        back.receives.push_back(
            {.peer = peer, .offset = at.returned, .bytes = rows.count() * PartialRowBytes(spec_)});
      }
      const Rows rows = Travelling(peer, run_.rank(), round);
      if (rows.count() == 0) continue;
      back.sends.push_back(
          {.peer = peer, .offset = at.partials, .bytes = rows.count() * PartialRowBytes(spec_)});
      QueryBlock& block = blocks.emplace_back(Partials(rows, at.partials));
      block.q = run_.arena() + at.rows;
      auto* const positions = reinterpret_cast<int64_t*>(run_.arena() + at.positions);
      block.positions = positions;
      if (BiasAxes(spec_) > 0) block.coordinates = Coordinates(run_.arena() + at.coordinates);
      RETURN_IF_ERROR(FillPositions(block, positions));
      RETURN_IF_ERROR(Empty(block));
      if (!QueriesCarrySlots(spec_)) continue;
      slots[peer].resize(rows.count());
      RETURN_IF_ERROR(run_.device().CopyOut(slots[peer].data(), run_.arena() + at.slots,
                                            rows.count() * kNumberBytes));
      block.slots = slots[peer];
    }
    RETURN_IF_ERROR(Compute(blocks, {&own_keys_, 1}));
    for (const BlockTransfer& send : back.sends) {
      RETURN_IF_ERROR(run_.Offer(send.offset, send.bytes));
    }
    RETURN_IF_ERROR(run_.Post(StepOf(round) + 1, back.sends, back.receives));
    RETURN_IF_ERROR(run_.Wait(StepOf(round) + 1, back.sends, back.receives));
    // The order of ranks gives the same bits at any time of arrival.
    for (const BlockTransfer& returned : back.receives) {
      RETURN_IF_ERROR(
          run_.Merge({MergeOf(Travelling(run_.rank(), returned.peer, round), returned.offset)}));
    }
    return PostRound(round + 1);
  }

  absl::Status Empty(const QueryBlock& block) {
    const int64_t states = block.rows.count() * spec_.heads;
    RETURN_IF_ERROR(run_.device().FillFloats(block.out, states * spec_.value_dim, 0));
    RETURN_IF_ERROR(
        run_.device().FillFloats(block.max, states, -std::numeric_limits<float>::infinity()));
    return run_.device().FillFloats(block.sum, states, 0);
  }

  MergeTask MergeOf(const Rows& rows, int64_t offset) {
    const QueryBlock part = Partials(rows, offset);
    const int64_t first = rows.begin - own_queries_.rows.begin;
    const int64_t row = spec_.heads * spec_.value_dim;
    return {.rows = rows.count(),
            .heads = spec_.heads,
            .value_dim = spec_.value_dim,
            .out = {.data = own_queries_.out + first * row,
                    .row_stride = row,
                    .head_stride = spec_.value_dim},
            .state = States(own_queries_, first),
            .scale = StateScale(spec_),
            .values = {.data = part.out, .row_stride = row, .head_stride = spec_.value_dim},
            .part = States(part, 0)};
  }

  StateView States(const QueryBlock& block, int64_t row) const {
    return {.max = block.max + row * spec_.heads,
            .sum = block.sum + row * spec_.heads,
            .row_stride = spec_.heads,
            .head_stride = 1};
  }

  absl::Status Finish() {
    const int64_t rows = own_queries_.rows.count();
    const int64_t row = spec_.heads * spec_.value_dim;
    if (rows > 0) {
      RETURN_IF_ERROR(run_.Finalize(
          {{.rows = rows,
            .heads = spec_.heads,
            .value_dim = spec_.value_dim,
            .from = {.data = own_queries_.out, .row_stride = row, .head_stride = spec_.value_dim},
            .to_dtype = spec_.dtype,
            .to = {.data = run_.store().Row(TensorKind::kOut, 0),
                   .row_stride = row,
                   .head_stride = spec_.value_dim},
            .scale = OutScale(spec_),
            .state = States(own_queries_, 0),
            .lse = {.data = own_queries_.max, .row_stride = spec_.heads, .head_stride = 1},
            .score_scale = StateScale(spec_),
            .sinks = run_.sinks()}}));
    }
    run_.TellFinal(rows);
    return absl::OkStatus();
  }

  RankRun& run_;
  const Plan& plan_;
  const JobSpec& spec_;
  const Rectangle& rectangle_;
  const int workers_;
  QueryBlock own_queries_;
  KeyRows own_keys_;
};

}  // namespace

absl::Status RunRectangle(RankRun& run) { return RectangleRun(run).Run(); }

}  // namespace hilbert_ring
