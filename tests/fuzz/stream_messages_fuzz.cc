// A client's side of AttendStream, as messages: what the coordinator does with each, from the bytes
// off the network to the rows of the epochs, less threads and transport. Each message is accepted
// or refused with a reason; epochs follow each other and hold every row. What they hold, and for
// which reason a chunk is refused: tests/unit/stream.
#include <algorithm>
#include <array>
#include <string>

#include "server/stream/epochs.h"
#include "server/stream/stream_rows.h"
#include "tests/fuzz/input_bytes.h"
#include "tests/fuzz/input_spec.h"
#include "tests/fuzz/split_chunk.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/payload_message.h"
#include "wire/reason.h"
#include "wire/status.h"

namespace hilbert_ring::fuzz {
namespace {

constexpr int64_t kMostBytes = 1 << 16;  // of an epoch
constexpr int kMaxMessages = 96;
constexpr v1::Tensor kTensors[] = {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V};

// Rows that were accepted, of each tensor.
struct Come {
  int64_t Least() const { return *std::ranges::min_element(rows); }
  std::array<int64_t, std::size(kTensors)> rows = {};
};

class Stream {
 public:
  explicit Stream(const server::Epochs& epochs) : epochs_(epochs), rows_(epochs) {}

  const Come& come() const { return come_; }

  // False when the stream ends.
  bool Receive(const v1::Chunk& chunk, const wire::Payload& payload) {
    const absl::Status status = rows_.Accept(chunk, payload, stop_);
    if (!status.ok()) {
      Require(wire::FindReason(wire::ReasonOf(status)) != nullptr,
              "a chunk is refused with a reason");
      return false;
    }
    const auto at = std::ranges::find(kTensors, chunk.tensor());
    Require(at != std::end(kTensors), "rows are of a tensor that a stream takes");
    come_.rows[at - std::begin(kTensors)] += chunk.rows();
    while (come_.Least() - begin_ >= epochs_.most_tokens()) {
      Require(TakeEpoch() == epochs_.tokens(), "an epoch is due when its rows have come");
    }
    return true;
  }

  void HalfClose() {
    const bool even = *std::ranges::max_element(come_.rows) == come_.Least();
    Require(rows_.End().ok() == even, "a stream ends with as many rows of each tensor");
    while (even && TakeEpoch() > 0) {
    }
    Require(!even || begin_ == come_.Least(), "every row is of an epoch");
  }

 private:
  // Rows of the next one; 0 when there is none.
  int64_t TakeEpoch() {
    const auto span = rows_.AwaitEpoch(stop_);
    Require(span.ok() && span->begin == begin_, "epochs follow each other");
    const int64_t rows = span->end - span->begin;
    if (rows == 0) return 0;
    Require(rows <= epochs_.most_tokens() && Validate(epochs_.SpecOf(rows)).ok(),
            "an epoch is a job that fits its memory");
    rows_.Release(*span);
    begin_ = span->end;
    return rows;
  }

  const server::Epochs& epochs_;
  server::JobStop stop_;
  server::StreamRows rows_;
  Come come_;
  int64_t begin_ = 0;  // of the epoch that comes
};

// The next rows of a tensor, mostly; else any rows, or a wrong payload.
v1::AttendRequest InputChunk(InputBytes& input, const JobSpec& spec, const server::Epochs& epochs,
                             const Come& come) {
  v1::AttendRequest request;
  v1::Chunk& chunk = *request.mutable_chunk();
  const uint8_t kind = input.Byte();
  // Whose rows are the fewest, unless another is asked for.
  size_t at = std::ranges::min_element(come.rows) - come.rows.begin();
  if ((kind & 3) != 0) at = (kind & 3) - 1;
  chunk.set_tensor(kTensors[at]);
  chunk.set_first_row(come.rows[at]);
  const int64_t room = come.Least() + epochs.tokens() - come.rows[at];
  chunk.set_rows(std::max<int64_t>(1, (kind & 4) != 0 ? 1 + input.Byte() % 16 : room));
  if ((kind & 8) == 0) chunk.set_rows(std::min(chunk.rows(), std::max<int64_t>(1, room)));
  if ((kind & 112) == 112) {
    chunk.set_tensor(static_cast<v1::Tensor>(input.Below(8)));
    chunk.set_first_row(input.Integer());
    chunk.set_rows(input.Integer());
  }
  const int64_t rows = std::clamp<int64_t>(chunk.rows(), 0, epochs.most_tokens() + 1);
  std::string payload(static_cast<size_t>(rows * wire::TensorRowBytes(spec, chunk.tensor())), 'x');
  chunk.set_crc32c(wire::Crc32c(payload));
  if ((kind & 112) == 96 && !payload.empty()) payload[input.Byte() % payload.size()] ^= 1;
  if ((kind & 112) == 80) {
    payload.resize(input.Byte(), 'x');
    chunk.set_crc32c(wire::Crc32c(payload));
  }
  chunk.set_payload(std::move(payload));
  return request;
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
  Require(epochs->most_tokens() * (epochs->input_row_bytes() + epochs->output_row_bytes()) <=
              kMostBytes,
          "an epoch has the memory that it may");
  Stream stream(*epochs);
  for (int messages = 0; messages < kMaxMessages && !input.empty(); ++messages) {
    const uint8_t kind = input.Byte();
    if (kind >= 250) return stream.HalfClose();
    std::string wire =
        InputChunk(input, epochs->SpecOf(1), *epochs, stream.come()).SerializeAsString();
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
