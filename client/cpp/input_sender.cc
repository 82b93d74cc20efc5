#include "client/cpp/input_sender.h"

#include <algorithm>
#include <string_view>

#include "wire/payload_message.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::client {

InputSender::InputSender(const AttendInputs& inputs, int64_t max_payload_bytes,
                         wire::RawStream& stream, ProgressTeller& progress)
    : inputs_(inputs),
      longest_payload_(std::min(max_payload_bytes, InputBytes(inputs.spec))),
      stream_(stream),
      progress_(progress),
      chunks_(inputs, max_payload_bytes) {}

void InputSender::StartThread() {
  thread_ = std::jthread([this] { Send(); });
}

void InputSender::Join() {
  if (thread_.joinable()) thread_.join();
}

void InputSender::Send() {
  wire::SlicePool buffers(longest_payload_);
  v1::Chunk chunk;
  std::string_view payload;
  int64_t left = InputBytes(inputs_.spec);
  while (chunks_.Next(chunk, payload)) {
    const auto bytes = static_cast<int64_t>(payload.size());
    left -= bytes;
    grpc::WriteOptions options;
    if (left == 0) options.set_last_message();
    // The transport may hold on to a message after the call, so it gets a copy.
    if (!stream_.Write(wire::JoinPayload(wire::kChunkFields, chunk, {buffers.Copy(payload)}),
                       options)) {
      return;
    }
    if (inputs_.sent && chunk.tensor() != v1::TENSOR_COORDS) {
      const int64_t begin = chunk.first_row() * (bytes / chunk.rows());
      inputs_.sent(chunk.tensor(), begin, begin + bytes);
    }
    progress_.Update([bytes](AttendProgress& progress) { progress.bytes_sent += bytes; });
  }
}

}  // namespace hilbert_ring::client
