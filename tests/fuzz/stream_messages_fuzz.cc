// A client's side of AttendStream, as messages: what the coordinator does with each, from the bytes
// off the network to the rows of the epochs, less threads and transport. Every message is accepted
// or refused with the reason that the protocol names; epochs have the rows that came, in their
// order, and end where no segment does; none of them needs more memory than was reserved.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "server/stream/epochs.h"
#include "server/stream/stream_rows.h"
#include "tests/fuzz/input_bytes.h"
#include "tests/fuzz/input_spec.h"
#include "tests/fuzz/row_content.h"
#include "tests/fuzz/split_chunk.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/payload_message.h"
#include "wire/status.h"

namespace hilbert_ring::fuzz {
namespace {

constexpr int64_t kMostBytes = 1 << 16;  // of an epoch
constexpr int kMaxMessages = 96;
constexpr v1::Tensor kTensors[] = {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V};

// What has come, the simple way.
struct Model {
  int64_t Come() const { return *std::ranges::min_element(come); }

  // The reason for which a chunk is refused; empty: its rows are there.
  std::string Accept(const JobSpec& spec, int64_t epoch_tokens, const v1::Chunk& chunk,
                     const std::string& payload) {
    const auto at = std::ranges::find(kTensors, chunk.tensor());
    if (at == std::end(kTensors)) return "BAD_TENSOR";
    int64_t& own = come[at - std::begin(kTensors)];
    const int64_t row_bytes = wire::TensorRowBytes(spec, chunk.tensor());
    if (chunk.rows() < 1 || chunk.rows() > wire::kMaxPayloadBytes / row_bytes ||
        static_cast<int64_t>(payload.size()) != chunk.rows() * row_bytes) {
      return "CHUNK_MISSHAPEN";
    }
    if (chunk.first_row() != own) return "ROWS_OUT_OF_ORDER";
    if (own + chunk.rows() - Come() > epoch_tokens) return "TENSOR_AHEAD";
    if (wire::Crc32c(payload) != chunk.crc32c()) return "CHECKSUM_MISMATCH";
    own += chunk.rows();
    rows[at - std::begin(kTensors)] += payload;
    return "";
  }

  std::array<int64_t, std::size(kTensors)> come = {};
  std::array<std::string, std::size(kTensors)> rows;
};

class Stream {
 public:
  Stream(const JobSpec& spec, const server::Epochs& epochs)
      : spec_(spec), epochs_(epochs), rows_(epochs) {}

  const Model& model() const { return model_; }

  // False when the stream ends.
  bool Receive(const v1::Chunk& chunk, const wire::Payload& payload) {
    std::string bytes(static_cast<size_t>(payload.bytes()), '\0');
    wire::PayloadReader(payload).Read(bytes.data(), payload.bytes());
    const absl::Status status = rows_.Accept(chunk, payload, stop_);
    const std::string refused = model_.Accept(spec_, epochs_.tokens(), chunk, bytes);
    Require(status.ok() == refused.empty(), "a chunk is accepted as the protocol says");
    if (!status.ok()) {
      Require(wire::ReasonOf(status) == refused, "a chunk is refused for the right reason");
      return false;
    }
    while (model_.Come() - begin_ >= epochs_.most_tokens()) {
      Require(TakeEpoch() == epochs_.tokens(), "an epoch is due when its rows have come");
    }
    return true;
  }

  void HalfClose() {
    const absl::Status status = rows_.End();
    const bool even = *std::ranges::max_element(model_.come) == model_.Come();
    Require(status.ok() == even, "a stream ends with as many rows of each tensor");
    if (!status.ok()) {
      Require(wire::ReasonOf(status) == "CHUNK_MISSING", "missing rows are the reason");
      return;
    }
    int64_t last = 0;
    while (const int64_t rows = TakeEpoch()) {
      Require(last == 0 || last == epochs_.tokens(), "only the last epoch is shorter");
      Require(rows <= epochs_.most_tokens(), "no epoch is longer than its memory");
      last = rows;
    }
    Require(begin_ == model_.Come(), "every row is of an epoch");
  }

 private:
  // Of the next one; 0 when there is none.
  int64_t TakeEpoch() {
    const auto span = rows_.AwaitEpoch(stop_);
    Require(span.ok() && span->begin == begin_, "epochs follow each other");
    const int64_t rows = span->end - span->begin;
    if (rows == 0) return 0;
    Require(Validate(epochs_.SpecOf(rows)).ok(), "an epoch is a job");
    for (size_t i = 0; i < std::size(kTensors); ++i) {
      const int64_t row_bytes = wire::TensorRowBytes(spec_, kTensors[i]);
      std::string bytes(static_cast<size_t>(rows * row_bytes), '\0');
      const wire::Payload payload = rows_.At(*wire::TensorKindOf(kTensors[i]), span->begin, rows);
      Require(payload.bytes() == rows * row_bytes, "rows have their size");
      wire::PayloadReader(payload).Read(bytes.data(), payload.bytes());
      Require(model_.rows[i].compare(begin_ * row_bytes, bytes.size(), bytes) == 0,
              "an epoch has the rows that came");
    }
    rows_.Release(*span);
    begin_ = span->end;
    return rows;
  }

  const JobSpec spec_;
  const server::Epochs& epochs_;
  server::JobStop stop_;
  server::StreamRows rows_;
  Model model_;
  int64_t begin_ = 0;  // of the epoch that comes
};

// The next rows of a tensor, mostly; else any rows, or a wrong payload.
v1::AttendRequest InputChunk(InputBytes& input, const JobSpec& spec, const server::Epochs& epochs,
                             const Model& model) {
  v1::AttendRequest request;
  v1::Chunk& chunk = *request.mutable_chunk();
  const uint8_t kind = input.Byte();
  // Whose rows are the fewest, unless another is asked for.
  size_t at = std::ranges::min_element(model.come) - model.come.begin();
  if ((kind & 3) != 0) at = (kind & 3) - 1;
  chunk.set_tensor(kTensors[at]);
  chunk.set_first_row(model.come[at]);
  const int64_t room = model.Come() + epochs.tokens() - model.come[at];
  chunk.set_rows(std::max<int64_t>(1, (kind & 4) != 0 ? 1 + input.Byte() % 16 : room));
  if ((kind & 8) == 0) chunk.set_rows(std::min(chunk.rows(), std::max<int64_t>(1, room)));
  if ((kind & 112) == 112) {
    chunk.set_tensor(static_cast<v1::Tensor>(input.Below(8)));
    chunk.set_first_row(input.Integer());
    chunk.set_rows(input.Integer());
  }
  const int64_t rows = std::clamp<int64_t>(chunk.rows(), 0, epochs.most_tokens() + 1);
  std::string payload = RowContent(chunk.tensor(), chunk.first_row(), rows,
                                   wire::TensorRowBytes(spec, chunk.tensor()));
  chunk.set_crc32c(wire::Crc32c(payload));
  if ((kind & 112) == 96 && !payload.empty()) payload[input.Byte() % payload.size()] ^= 1;
  if ((kind & 112) == 80) {
    payload.resize(input.Byte(), 'x');
    chunk.set_crc32c(wire::Crc32c(payload));
  }
  chunk.set_payload(std::move(payload));
  return request;
}

// No segment lies over two epochs.
void CheckEpochs(const JobSpec& spec, const server::Epochs& epochs) {
  Require(epochs.tokens() >= 1 && epochs.tokens() % epochs.multiple() == 0,
          "an epoch is a multiple");
  for (const Branch& branch : spec.branches) {
    Require(!spec.sequence_lengths.empty() || epochs.tokens() % branch.segment == 0,
            "no segment lies over two epochs");
  }
  Require(
      epochs.most_tokens() * (epochs.input_row_bytes() + epochs.output_row_bytes()) <= kMostBytes,
      "an epoch has the memory that it may");
}

}  // namespace

void StreamMessages(Bytes bytes) {
  SilenceProtobuf();
  InputBytes input(bytes);
  const uint8_t flags = input.Byte();
  JobSpec spec = InputSpec(input, 40);
  if ((flags & 1) == 0) spec.tokens = 0;
  for (Branch& branch : spec.branches) {
    if ((flags & 2) == 0 && branch.segment > 0) branch.segment = int64_t{1} << (branch.segment % 6);
  }
  const int64_t asked = (flags & 4) == 0 ? 0 : input.Integer();
  const auto epochs = server::Epochs::Make(
      spec, {.asked = asked, .most_bytes = kMostBytes, .want_lse = (flags & 8) != 0});
  if (!epochs.ok()) {
    const std::string reason = wire::ReasonOf(epochs.status());
    Require(reason == "INVALID_SPEC" || reason == "INVALID_OPEN" || reason == "DOES_NOT_FIT",
            "a stream is refused for a reason");
    return;
  }
  CheckEpochs(spec, *epochs);
  Stream stream(epochs->SpecOf(1), *epochs);
  for (int messages = 0; messages < kMaxMessages && !input.empty(); ++messages) {
    const uint8_t kind = input.Byte();
    if (kind >= 250) return stream.HalfClose();
    std::string wire =
        InputChunk(input, epochs->SpecOf(1), *epochs, stream.model()).SerializeAsString();
    if (kind >= 230 && !wire.empty()) {
      const size_t at = input.Byte() % wire.size();
      wire[at] = static_cast<char>(wire[at] ^ (1 << input.Below(8)));
    }
    grpc::Slice slice(wire);
    grpc::ByteBuffer buffer(&slice, 1);
    v1::AttendRequest received;
    wire::Payload payload;
    if (!SplitChunk(buffer, kind < 230, received, payload)) return;
    if (!stream.Receive(received.chunk(), payload)) return;
  }
  stream.HalfClose();
}

}  // namespace hilbert_ring::fuzz
