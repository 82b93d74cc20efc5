#include "engine/run/rank_views.h"

namespace hilbert_ring {
namespace {

// Slots between two rows; 0 for a single row, because its dilation may exceed any buffer.
int64_t RowStep(const LocalRows& rows) { return rows.rows.count > 1 ? rows.rows.step : 0; }

}  // namespace

RankViews::RankViews(const Plan& plan, ShardStore& store, const AccumulatorMemory& accumulators,
                     const int64_t* query_slots)
    : plan_(plan), store_(store), accumulators_(accumulators), query_slots_(query_slots) {}

ConstView RankViews::Rows(TensorKind tensor, const LocalRows& rows, int64_t head) const {
  const JobSpec& spec = plan_.spec;
  const int64_t dim =
      tensor == TensorKind::kV || tensor == TensorKind::kOut ? spec.value_dim : spec.head_dim;
  const int64_t row = RowBytes(spec, tensor) / ElementBytes(spec.dtype);
  return {
      .data = store_.Row(tensor, LocalRow(rows.rows.first)) + head * dim * ElementBytes(spec.dtype),
      .batch_stride = rows.batch_slots * row,
      .row_stride = RowStep(rows) * row,
      .head_stride = dim};
}

MutableView RankViews::Out(const LocalRows& rows, int64_t head) const {
  const ConstView view = Rows(TensorKind::kOut, rows, head);
  return {.data = const_cast<void*>(view.data),
          .batch_stride = view.batch_stride,
          .row_stride = view.row_stride,
          .head_stride = view.head_stride};
}

LseView RankViews::Lse(const LocalRows& rows, int64_t head) const {
  const int64_t heads = plan_.spec.heads;
  auto* data = reinterpret_cast<float*>(store_.Row(TensorKind::kLse, LocalRow(rows.rows.first)));
  return {.data = data + head,
          .batch_stride = rows.batch_slots * heads,
          .row_stride = RowStep(rows) * heads,
          .head_stride = 1};
}

StateView RankViews::State(const LocalRows& rows, int64_t head) const {
  const LseView max = Lse(rows, head);
  return {.max = max.data,
          .sum = accumulators_.sums + LocalRow(rows.rows.first) * plan_.spec.heads + head,
          .batch_stride = max.batch_stride,
          .row_stride = max.row_stride,
          .head_stride = max.head_stride};
}

Accumulator RankViews::WholeAccumulator(const LocalRows& rows, int64_t head) const {
  Accumulator accumulator{.out = Out(rows, head), .state = State(rows, head)};
  if (plan_.spec.dtype != DataType::kFloat32) {
    const int64_t row = plan_.spec.heads * plan_.spec.value_dim;
    accumulator.out.data =
        accumulators_.out + LocalRow(rows.rows.first) * row + head * plan_.spec.value_dim;
  }
  return accumulator;
}

Accumulator RankViews::PieceAccumulator(const LocalRows& rows, float* block, const Phase& phase,
                                        int64_t head) const {
  const int64_t dim = plan_.spec.value_dim;
  return {.out = {.data = block + (head - phase.head_begin) * dim,
                  .row_stride = phase.heads() * dim,
                  .head_stride = dim},
          .state = State(rows, head)};
}

const float* RankViews::Slopes(int64_t head) const {
  return accumulators_.slopes == nullptr ? nullptr : accumulators_.slopes + head;
}

const float* RankViews::Sinks(int64_t head) const {
  return accumulators_.sinks == nullptr ? nullptr : accumulators_.sinks + head;
}

PositionsView RankViews::Positions(const int64_t* data, const LocalRows& rows) const {
  return {.data = data + LocalRow(rows.rows.first),
          .batch_stride = rows.batch_slots,
          .row_stride = RowStep(rows)};
}

PositionsView RankViews::QueryPositions(const LocalRows& rows) const {
  return Positions(query_slots_ != nullptr ? query_slots_ : store_.device_tokens(), rows);
}

PositionsView RankViews::KeyPositions(const LocalRows& rows) const {
  return Positions(store_.device_tokens(), rows);
}

CoordinatesView RankViews::Coordinates(int64_t first, const LocalRows& rows) const {
  const int64_t axes = BiasAxes(plan_.spec);
  if (axes == 0) return {};
  const std::byte* const row =
      store_.Row(TensorKind::kBiasCoords, first + LocalRow(rows.rows.first));
  return {.data = reinterpret_cast<const float*>(row),
          .batch_stride = rows.batch_slots * axes,
          .row_stride = RowStep(rows) * axes};
}

CoordinatesView RankViews::QueryCoordinates(const LocalRows& rows) const {
  return Coordinates(HasQueryCoordinates(plan_.spec) ? store_.rows() : 0, rows);
}

CoordinatesView RankViews::KeyCoordinates(const LocalRows& rows) const {
  return Coordinates(0, rows);
}

}  // namespace hilbert_ring
