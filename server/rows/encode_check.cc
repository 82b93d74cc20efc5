#include "server/rows/encode_check.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/reference/sample_tokens.h"

namespace hilbert_ring::server {
namespace {

constexpr int64_t kMostStateBytes = int64_t{64} << 20;  // of drawn rows

// As many rows as are asked for, whose states take no more than kMostStateBytes.
int64_t RowsToDraw(const EncodeJob& job, int64_t rows) {
  const int64_t of_row =
      (job.config.layers + 1) * job.config.embed_dim * static_cast<int64_t>(sizeof(float));
  return std::min(rows, std::max<int64_t>(1, kMostStateBytes / of_row));
}

std::vector<float> Floats(std::string_view bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

// Of both computations.
double ProductsOfSlide(const EncoderConfig& config, int64_t tokens) {
  const auto width = static_cast<double>(config.embed_dim);
  double keys = 0;
  for (const Branch& branch : config.branches) {
    const int64_t length = std::min(branch.segment, tokens);
    const int64_t selected = (length - 1) / branch.dilation + 1;
    keys += static_cast<double>(selected);
  }
  const double of_row = 4 * width * width + 2 * width * static_cast<double>(config.ffn_dim) +
                        2 * width * static_cast<double>(config.heads) * keys;
  return 2 * static_cast<double>(config.layers) * of_row * static_cast<double>(tokens);
}

EncodeDraw Draw(const EncodeJob& job, const EncodeCheckOptions& options) {
  EncodeDraw draw{.job = job, .rows = SlideRows(job.slide_tiles, job.config.class_token ? 1 : 0)};
  draw.tokens = SampleTokens(draw.rows.tokens(), RowsToDraw(job, options.rows), options.seed);
  double products = 0;
  for (const int64_t token : draw.tokens) {
    const int64_t slide = draw.rows.SlideOf(token);
    if (!draw.slides.empty() && draw.slides.back() == slide) continue;
    draw.slides.push_back(slide);
    products +=
        ProductsOfSlide(job.config, draw.rows.FirstToken(slide + 1) - draw.rows.FirstToken(slide));
  }
  if (products <= options.most_products) return draw;
  std::mt19937_64 random(options.seed);
  draw.layer = std::uniform_int_distribution<int64_t>(1, job.config.layers)(random);
  return draw;
}

}  // namespace

EncodeCheck::EncodeCheck(const EncodeJob& job, std::unique_ptr<ModelReader> model,
                         const EncodeCheckOptions& options)
    : draw_(Draw(job, options)), model_(std::move(model)) {}

void EncodeCheck::Describe(v1::RunOpen& open) const {
  open.mutable_check()->mutable_tokens()->Assign(draw_.tokens.begin(), draw_.tokens.end());
  open.mutable_check()->set_layer(draw_.layer);
}

void EncodeCheck::BeginExecution() {
  const MutexLock lock(mutex_);
  account_.states.clear();
}

absl::Status EncodeCheck::TakeState(const v1::CheckedState& state) {
  const auto bytes = static_cast<size_t>(draw_.job.config.embed_dim) * sizeof(float);
  if (!draw_.Has(state.token()) || state.state() < 0 || state.state() > draw_.job.config.layers ||
      state.values().size() != bytes) {
    return absl::InternalError(absl::StrCat("a worker told ", state.values().size(),
                                            " bytes of state ", state.state(), " of token ",
                                            state.token(), ", which nobody asked for"));
  }
  const MutexLock lock(mutex_);
  const bool added =
      account_.states.emplace(std::pair(state.token(), state.state()), Floats(state.values()))
          .second;
  return added ? absl::OkStatus()
               : absl::InternalError(absl::StrCat("a worker told state ", state.state(),
                                                  " of token ", state.token(), " twice"));
}

void EncodeCheck::Take(const v1::OutputChunk& chunk, std::string_view payload,
                       const std::shared_ptr<const Member>& /*worker*/) {
  const bool pooled = chunk.tensor() == v1::TENSOR_POOLED;
  if (!pooled && chunk.tensor() != v1::TENSOR_STATES) return;
  const std::vector<int64_t>& drawn = pooled ? draw_.slides : draw_.tokens;
  const auto bytes = static_cast<size_t>(draw_.job.config.embed_dim) * sizeof(float);
  const size_t row_bytes = bytes * draw_.job.outputs.states.size();
  const int64_t end = chunk.first_token() + chunk.rows();
  const MutexLock lock(mutex_);
  for (auto row = std::ranges::lower_bound(drawn, chunk.first_token());
       row != drawn.end() && *row < end; ++row) {
    const size_t place = static_cast<size_t>(*row - chunk.first_token()) * row_bytes;
    if (payload.size() < place + row_bytes) return;  // misshapen: the client finds that
    for (size_t i = 0; i < draw_.job.outputs.states.size(); ++i) {
      (pooled ? account_.pooled : account_.sent)[{*row, static_cast<int64_t>(i)}] =
          Floats(payload.substr(place + i * bytes, bytes));
    }
  }
}

absl::StatusOr<OutputCheck::Verdict> EncodeCheck::Compare(const Execution& execution) const {
  const MutexLock lock(mutex_);
  return CompareRows(draw_, account_, *model_, execution);
}

}  // namespace hilbert_ring::server
