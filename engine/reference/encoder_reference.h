// Rows of an encoder computed again in float64, one at a time: a second opinion on weights,
// kernels, exchange and placement together. tests/golden/encoder_oracle.py is the definition.
//
//   ASSIGN_OR_RETURN(const auto layer, ReferenceLayer::Load(folder, 7));
//   TwiceComputed row{layer.Exact(attention, order, token, rows),
//                     layer.Moved(attention, order, token, rows)};
//   row.Compare(actual, Spread(rows)).excess;      // above 1: no right worker computed it
//
// A row is computed twice: exactly, and as the arithmetic of the workers may move it: with weights
// rounded as theirs are, which moves all rows alike, so that a mean of rows is as far off as one of
// them, and with every result of a product or a norm moved at random. The distance between the two
// says how far off a right row may be: whatever makes the model sensitive makes it sensitive there
// too.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/files/encoder_folder.h"
#include "engine/model/files/slide_rows.h"
#include "engine/order/permutation.h"
#include "engine/reference/attention_reference.h"

namespace hilbert_ring {

// How far the workers' arithmetic moves a number, as a part of its size.
struct Rounding {
  // Of products in this type: half a unit of bfloat16 on both factors; in float32 sums of thousands
  // of terms, of which each rounds.
  static Rounding Of(DataType compute);
  double product = 0;
  double float32 = 0;  // of norms, sums and the residual
};

// Moves each number up or down, at random, by so much of its own size and the row's root mean
// square.
void MoveAtRandom(std::span<double> row, double by, std::mt19937_64& random);

// A row as it is by the definition, and as it is with the workers' rounding.
struct TwiceComputed {
  std::vector<double> exact, moved;

  bool finite() const;

  // How far off a number may be: kMargin times the difference of the two, its own, the row's root
  // mean square or that of the rows beside it (Spread), and the spacing of float32 at the row's
  // greatest number.
  struct Worst {
    int64_t dim = 0;
    double actual = 0, expected = 0, tolerance = 0;
    double excess = 0;  // difference / tolerance; of a number that is none: infinite
  };
  Worst Compare(std::span<const float> actual, double spread) const;
};

// The root mean square of the differences of rows that passed the same layers. The draw of one row
// can be near its exact one by chance where the row moves along one direction, as behind the norm
// of a row of small numbers. Of the rows of the golden encoders but the largest, each held
// against 47 more draws of itself, up to 7e-4 of a case were off without it and 6e-5 with it, by
// 1.45 times at most.
double Spread(std::span<const TwiceComputed> rows);

// A right row is off from the definition as the moved one is: each is one draw of the same
// rounding. Of normal draws one in 10^15 is beyond eight of their deviations.
inline constexpr double kMargin = 8;

// y = W x + b, from a model's folder.
class ReferenceLinear {
 public:
  // Errors of EncoderFolder::Floats.
  static absl::StatusOr<ReferenceLinear> Load(const EncoderFolder& folder, const std::string& name);

  int64_t in() const { return static_cast<int64_t>(weight_.size()) / out(); }
  int64_t out() const { return static_cast<int64_t>(bias_.size()); }
  std::span<const float> row(int64_t i) const {
    return std::span(weight_).subspan(static_cast<size_t>(i * in()), static_cast<size_t>(in()));
  }
  const std::vector<float>& bias() const { return bias_; }
  std::vector<double> operator()(std::span<const double> x) const;

  // As workers hold it that compute in this type; biases are float32.
  ReferenceLinear RoundedTo(DataType compute) const;

 private:
  std::vector<float> weight_, bias_;  // [out, in], [out]
};

// What makes rows of tiles: the input of the first layer.
class ReferenceInput {
 public:
  static absl::StatusOr<ReferenceInput> Load(const EncoderFolder& folder, DataType compute);

  // tile: [tile_dim]; coords: [2], or null where the model has no positions.
  TwiceComputed RowOf(std::span<const double> tile, const double* coords);
  TwiceComputed ClassToken() const;

 private:
  EncoderConfig config_;
  Rounding rounding_;
  std::optional<ReferenceLinear> projection_, rounded_projection_;
  std::vector<float> class_token_;
  std::mt19937_64 random_{1};
};

// A norm of the model, over the numbers of a row.
std::vector<double> ReferenceNorm(const LayerNorm& norm, std::span<const double> row);

// One layer, applied to a row that sees others. Used by one thread.
class ReferenceLayer {
 public:
  // layer: from 1. Errors of EncoderFolder::Floats.
  static absl::StatusOr<ReferenceLayer> Load(const EncoderFolder& folder, int64_t layer,
                                             DataType compute);

  // The row of `token` after the layer, exact; `rows` has all rows before it (Read of whole rows).
  // attention: AttentionOf the job. Takes 2 x embed_dim multiplications for each head and key, for
  // a head's scores are products of the keys' own rows with one vector, and so are its values.
  std::vector<double> Exact(const JobSpec& attention, const Permutation& order, int64_t token,
                            const RowSource& rows);
  // The same, moved.
  std::vector<double> Moved(const JobSpec& attention, const Permutation& order, int64_t token,
                            const RowSource& rows);

 private:
  struct HeadQuery;
  struct Arithmetic {
    std::span<const ReferenceLinear> linear;
    Rounding rounding;
  };
  ReferenceLayer() = default;
  std::vector<double> Row(const JobSpec& attention, const Permutation& order, int64_t token,
                          const RowSource& rows, const Arithmetic& arithmetic);
  std::vector<double> Attend(const JobSpec& attention, const Permutation& order, int64_t token,
                             const RowSource& rows, std::span<const double> x,
                             const Arithmetic& arithmetic);
  HeadQuery QueryOf(int64_t head, std::span<const double> q, const ReferenceLinear& k) const;

  int64_t width_ = 0;
  std::vector<ReferenceLinear> linear_;   // q, k, v, out, fc1, fc2
  std::vector<ReferenceLinear> rounded_;  // likewise; none where workers round none
  Rounding rounding_;
  LayerNorm attention_norm_, inner_attention_norm_, ffn_norm_, inner_ffn_norm_;
  std::mt19937_64 random_{1};
};

// Of a norm in a folder: [name].weight and [name].bias.
absl::StatusOr<LayerNorm> LoadReferenceNorm(const EncoderFolder& folder, const std::string& name,
                                            double epsilon);

}  // namespace hilbert_ring
