#include "wire/codec.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/spec_notes.h"
#include "engine/spec/tensor.h"
#include "nlohmann/json.hpp"
#include "wire/status.h"

namespace hilbert_ring::wire {
namespace {

absl::Status BadField(std::string_view field, std::string_view what) {
  return wire::ErrorOf(wire::reason::kInvalidSpec,
                       absl::StrCat(std::string(field), " ", std::string(what)));
}

absl::StatusOr<Ordering> DecodeOrdering(const v1::Ordering& message) {
  Ordering ordering;
  switch (message.curve()) {
    case v1::CURVE_HILBERT:
      ordering.curve = Curve::kHilbert;
      break;
    case v1::CURVE_MORTON:
      ordering.curve = Curve::kMorton;
      break;
    case v1::CURVE_AUTO:
      return BadField("ordering.curve", "is auto, must be hilbert or morton in a job");
    default:
      return BadField("ordering.curve", "is unspecified or unknown");
  }
  switch (message.scope()) {
    case v1::ORDER_SCOPE_QKV:
      ordering.scope = OrderScope::kQkv;
      break;
    case v1::ORDER_SCOPE_KV:
      ordering.scope = OrderScope::kKv;
      break;
    default:
      return BadField("ordering.scope", "is unspecified or unknown");
  }
  ordering.window = message.window();
  ordering.grid.assign(message.grid().begin(), message.grid().end());
  ordering.coordinate_axes = message.coordinate_axes();
  return ordering;
}

absl::StatusOr<Alibi> DecodeAlibi(const v1::Alibi& message) {
  const int axes = message.axes();
  switch (message.distance()) {
    case v1::ALIBI_DISTANCE_TOKENS:
      if (axes == 0) break;
      return BadField("alibi.axes", absl::StrCat("is ", axes, ", must be 0 with distance tokens"));
    case v1::ALIBI_DISTANCE_COORDS:
      if (axes == 2 || axes == 3) break;
      return BadField("alibi.axes", absl::StrCat("is ", axes, ", must be 2 or 3"));
    default:
      return BadField("alibi.distance", "is unspecified or unknown");
  }
  return Alibi{.slopes = {message.slopes().begin(), message.slopes().end()},
               .coordinate_axes = axes};
}

nlohmann::ordered_json PlanJson(const Plan& plan, const PlanSeconds& time) {
  nlohmann::ordered_json json;
  const Costs& costs = plan.costs;
  json["tokens"] = plan.spec.tokens;
  json["key_tokens"] = KeyTokens(plan.spec);
  json["notes"] = NotesOn(plan.spec);
  json["seconds"] = time.seconds > 0 ? nlohmann::ordered_json(time.seconds) : nullptr;
  json["seconds_basis"] = time.basis;
  json["mirrored"] = plan.mirrored;
  if (plan.rectangle) {
    json["travels"] = plan.rectangle->travels == Travels::kKeys ? "keys" : "queries";
    json["travels_why"] = plan.rectangle->why;
  }
  json["ring_steps"] = costs.steps;
  json["flops"] = costs.flops;
  json["busiest_over_mean"] = costs.busiest_over_mean;
  json["bytes_exchanged"] = costs.bytes_exchanged;
  json["bytes_exchanged_naive"] = costs.bytes_exchanged_naive;
  for (size_t i = 0; i < costs.branches.size(); ++i) {
    json["branches"].push_back({{"segment", plan.spec.branches[i].segment},
                                {"dilation", plan.spec.branches[i].dilation},
                                {"segments_local", costs.branches[i].segments_local},
                                {"segments_exchanged", costs.branches[i].segments_exchanged},
                                {"bytes_exchanged", costs.branches[i].bytes_exchanged}});
  }
  for (size_t rank = 0; rank < costs.workers.size(); ++rank) {
    const WorkerCost& worker = costs.workers[rank];
    nlohmann::ordered_json shard = nlohmann::ordered_json::array();
    for (const hilbert_ring::ShardRange& range : plan.shards.OfRank(static_cast<int>(rank))) {
      shard.push_back({range.begin, range.end});
    }
    json["workers"].push_back({{"shard", shard},
                               {"tokens", worker.tokens},
                               {"flops", worker.flops},
                               {"bytes_sent", worker.bytes_sent},
                               {"bytes_received", worker.bytes_received},
                               {"resident_bytes", worker.resident_bytes()},
                               {"shard_bytes", worker.shard_bytes},
                               {"accumulator_bytes", worker.accumulator_bytes},
                               {"exchange_buffer_bytes", worker.exchange_buffer_bytes},
                               {"order_bytes", worker.order_bytes},
                               {"list_bytes", worker.list_bytes}});
  }
  if (costs.workers.size() <= kMostWorkersWithTransfers) {
    nlohmann::ordered_json transfers = nlohmann::ordered_json::array();
    for (const StepTransfer& transfer : costs.transfers) {
      transfers.push_back({{"step", transfer.step},
                           {"from", transfer.from},
                           {"to", transfer.to},
                           {"bytes", transfer.bytes}});
    }
    json["transfers"] = std::move(transfers);
  }
  return json;
}

}  // namespace

std::optional<DataType> DecodeDataType(v1::DataType message) {
  switch (message) {
    case v1::DATA_TYPE_FLOAT32:
      return DataType::kFloat32;
    case v1::DATA_TYPE_BFLOAT16:
      return DataType::kBFloat16;
    case v1::DATA_TYPE_FLOAT16:
      return DataType::kFloat16;
    default:
      return std::nullopt;
  }
}

v1::DataType EncodeDataType(DataType dtype) {
  switch (dtype) {
    case DataType::kBFloat16:
      return v1::DATA_TYPE_BFLOAT16;
    case DataType::kFloat16:
      return v1::DATA_TYPE_FLOAT16;
    case DataType::kFloat32:
      break;
  }
  return v1::DATA_TYPE_FLOAT32;
}

absl::StatusOr<JobSpec> DecodeJobSpec(const v1::JobSpec& message) {
  JobSpec spec;
  spec.tokens = message.tokens();
  spec.heads = message.heads();
  spec.kv_heads = message.kv_heads();
  spec.head_dim = message.head_dim();
  spec.value_dim = message.value_dim();
  const std::optional<DataType> dtype = DecodeDataType(message.dtype());
  if (!dtype) return BadField("dtype", "is unspecified or unknown");
  spec.dtype = *dtype;
  if (message.segments_size() != message.dilations_size()) {
    return BadField("dilations", absl::StrCat("has ", message.dilations_size(),
                                              " values, must have as many as segments: ",
                                              message.segments_size()));
  }
  for (int i = 0; i < message.segments_size(); ++i) {
    spec.branches.push_back({message.segments(i), message.dilations(i)});
  }
  switch (message.mixing()) {
    case v1::MIXING_HEAD_GROUPS:
      spec.mixing = Mixing::kHeadGroups;
      break;
    case v1::MIXING_LSE:
      spec.mixing = Mixing::kLse;
      break;
    default:
      return BadField("mixing", "is unspecified or unknown");
  }
  switch (message.tail()) {
    case v1::TAIL_MASK:
      spec.tail = Tail::kMask;
      break;
    case v1::TAIL_ZERO:
      spec.tail = Tail::kZero;
      break;
    default:
      return BadField("tail", "is unspecified or unknown");
  }
  spec.causal = message.causal();
  if (message.has_scale()) spec.scale = message.scale();
  spec.average_groups = message.average_groups();
  if (message.has_ordering()) {
    ASSIGN_OR_RETURN(spec.ordering, DecodeOrdering(message.ordering()));
  }
  spec.sequence_lengths.assign(message.sequence_lengths().begin(),
                               message.sequence_lengths().end());
  if (message.has_key_tokens() && message.key_tokens() != spec.tokens) {
    spec.key_tokens = message.key_tokens();
  }
  spec.key_sequence_lengths.assign(message.key_sequence_lengths().begin(),
                                   message.key_sequence_lengths().end());
  switch (message.align()) {
    case v1::ALIGN_UNSPECIFIED:
    case v1::ALIGN_END:
      break;
    case v1::ALIGN_START:
      spec.align = Align::kStart;
      break;
    default:
      return BadField("align", "is unknown");
  }
  if (message.has_window()) {
    const v1::Window& from = message.window();
    Window& to = spec.window.emplace();
    if (from.has_left()) to.left = from.left();
    if (from.has_right()) to.right = from.right();
  }
  if (message.has_softcap()) spec.softcap = message.softcap();
  spec.sinks.assign(message.sinks().begin(), message.sinks().end());
  if (message.has_alibi()) {
    ASSIGN_OR_RETURN(spec.alibi, DecodeAlibi(message.alibi()));
  }
  return spec;
}

v1::Curve CurveOf(Curve curve) {
  return curve == Curve::kMorton ? v1::CURVE_MORTON : v1::CURVE_HILBERT;
}

v1::JobSpec EncodeJobSpec(const JobSpec& spec) {
  v1::JobSpec message;
  message.set_tokens(spec.tokens);
  message.set_heads(spec.heads);
  message.set_kv_heads(spec.kv_heads);
  message.set_head_dim(spec.head_dim);
  message.set_value_dim(spec.value_dim);
  message.set_dtype(EncodeDataType(spec.dtype));
  for (const Branch& branch : spec.branches) {
    message.add_segments(branch.segment);
    message.add_dilations(branch.dilation);
  }
  message.set_mixing(spec.mixing == Mixing::kLse ? v1::MIXING_LSE : v1::MIXING_HEAD_GROUPS);
  message.set_causal(spec.causal);
  if (spec.scale) message.set_scale(*spec.scale);
  message.set_tail(spec.tail == Tail::kZero ? v1::TAIL_ZERO : v1::TAIL_MASK);
  message.set_average_groups(spec.average_groups);
  if (spec.ordering) {
    const Ordering& from = *spec.ordering;
    v1::Ordering* to = message.mutable_ordering();
    to->set_curve(CurveOf(from.curve));
    to->set_scope(from.scope == OrderScope::kKv ? v1::ORDER_SCOPE_KV : v1::ORDER_SCOPE_QKV);
    to->set_window(from.window);
    for (const int64_t side : from.grid) to->add_grid(side);
    to->set_coordinate_axes(from.coordinate_axes);
  }
  message.mutable_sequence_lengths()->Add(spec.sequence_lengths.begin(),
                                          spec.sequence_lengths.end());
  if (spec.key_tokens) message.set_key_tokens(*spec.key_tokens);
  message.mutable_key_sequence_lengths()->Add(spec.key_sequence_lengths.begin(),
                                              spec.key_sequence_lengths.end());
  message.set_align(spec.align == Align::kStart ? v1::ALIGN_START : v1::ALIGN_END);
  if (spec.window) {
    v1::Window* to = message.mutable_window();
    if (spec.window->left) to->set_left(*spec.window->left);
    if (spec.window->right) to->set_right(*spec.window->right);
  }
  if (spec.softcap) message.set_softcap(*spec.softcap);
  message.mutable_sinks()->Add(spec.sinks.begin(), spec.sinks.end());
  if (spec.alibi) {
    v1::Alibi* to = message.mutable_alibi();
    to->mutable_slopes()->Add(spec.alibi->slopes.begin(), spec.alibi->slopes.end());
    to->set_distance(BiasAxes(spec) > 0 ? v1::ALIBI_DISTANCE_COORDS : v1::ALIBI_DISTANCE_TOKENS);
    to->set_axes(BiasAxes(spec));
  }
  return message;
}

v1::PlanResponse EncodePlan(const Plan& plan, const PlanSeconds& time) {
  v1::PlanResponse response;
  const Costs& costs = plan.costs;
  for (size_t rank = 0; rank < costs.workers.size(); ++rank) {
    const WorkerCost& from = costs.workers[rank];
    v1::WorkerPlan* to = response.add_workers();
    for (const hilbert_ring::ShardRange& range : plan.shards.OfRank(static_cast<int>(rank))) {
      v1::SlotRange* slots = to->add_shard();
      slots->set_begin(range.begin);
      slots->set_end(range.end);
    }
    to->set_tokens(from.tokens);
    to->set_flops(from.flops);
    to->set_bytes_sent(from.bytes_sent);
    to->set_bytes_received(from.bytes_received);
    to->set_resident_bytes(from.resident_bytes());
    to->set_shard_bytes(from.shard_bytes);
    to->set_accumulator_bytes(from.accumulator_bytes);
    to->set_exchange_buffer_bytes(from.exchange_buffer_bytes);
    to->set_order_bytes(from.order_bytes);
    to->set_list_bytes(from.list_bytes);
  }
  for (size_t i = 0; i < costs.branches.size(); ++i) {
    v1::BranchPlan* branch = response.add_branches();
    branch->set_segment(plan.spec.branches[i].segment);
    branch->set_dilation(plan.spec.branches[i].dilation);
    branch->set_segments_local(costs.branches[i].segments_local);
    branch->set_segments_exchanged(costs.branches[i].segments_exchanged);
    branch->set_bytes_exchanged(costs.branches[i].bytes_exchanged);
  }
  response.set_ring_steps(costs.steps);
  response.set_flops(costs.flops);
  response.set_busiest_over_mean(costs.busiest_over_mean);
  response.set_bytes_exchanged(costs.bytes_exchanged);
  response.set_bytes_exchanged_naive(costs.bytes_exchanged_naive);
  response.set_mirrored(plan.mirrored);
  if (plan.rectangle) {
    response.set_travels(plan.rectangle->travels == Travels::kKeys ? v1::TRAVELS_KEYS
                                                                   : v1::TRAVELS_QUERIES);
    response.set_travels_why(plan.rectangle->why);
  }
  for (std::string& note : NotesOn(plan.spec)) response.add_notes(std::move(note));
  response.set_seconds(time.seconds);
  response.set_seconds_basis(time.basis);
  response.set_json(PlanJson(plan, time).dump());
  return response;
}

std::optional<TensorKind> TensorKindOf(v1::Tensor tensor) {
  switch (tensor) {
    case v1::TENSOR_Q:
      return TensorKind::kQ;
    case v1::TENSOR_K:
      return TensorKind::kK;
    case v1::TENSOR_V:
      return TensorKind::kV;
    case v1::TENSOR_OUT:
      return TensorKind::kOut;
    case v1::TENSOR_LSE:
      return TensorKind::kLse;
    case v1::TENSOR_BIAS_COORDS:
      return TensorKind::kBiasCoords;
    case v1::TENSOR_TILES:
      return TensorKind::kTiles;
    case v1::TENSOR_TILE_COORDS:
      return TensorKind::kTileCoords;
    case v1::TENSOR_STATES:
      return TensorKind::kStates;
    case v1::TENSOR_ATTENTION_MAP:
      return TensorKind::kAttentionMap;
    default:
      return std::nullopt;
  }
}

v1::Tensor TensorOf(TensorKind tensor) {
  switch (tensor) {
    case TensorKind::kQ:
      return v1::TENSOR_Q;
    case TensorKind::kK:
      return v1::TENSOR_K;
    case TensorKind::kV:
      return v1::TENSOR_V;
    case TensorKind::kOut:
      return v1::TENSOR_OUT;
    case TensorKind::kLse:
      return v1::TENSOR_LSE;
    case TensorKind::kBiasCoords:
      return v1::TENSOR_BIAS_COORDS;
    case TensorKind::kTiles:
      return v1::TENSOR_TILES;
    case TensorKind::kTileCoords:
      return v1::TENSOR_TILE_COORDS;
    case TensorKind::kStates:
      return v1::TENSOR_STATES;
    case TensorKind::kAttentionMap:
      return v1::TENSOR_ATTENTION_MAP;
  }
  return v1::TENSOR_UNSPECIFIED;
}

int64_t TensorRowBytes(const JobSpec& spec, v1::Tensor tensor) {
  if (tensor == v1::TENSOR_COORDS) {
    return spec.ordering ? spec.ordering->coordinate_axes * int64_t{sizeof(uint32_t)} : 0;
  }
  const std::optional<TensorKind> kind = TensorKindOf(tensor);
  return kind ? RowBytes(spec, *kind) : 0;
}

std::string TensorName(v1::Tensor tensor) {
  const std::string name = v1::Tensor_Name(tensor);
  constexpr std::string_view kPrefix = "TENSOR_";
  if (name.size() > kPrefix.size()) return name.substr(kPrefix.size());
  return absl::StrCat("tensor ", static_cast<int>(tensor));
}

}  // namespace hilbert_ring::wire
