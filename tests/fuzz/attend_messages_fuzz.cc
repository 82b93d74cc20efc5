// A client's Attend messages, from the network's bytes to the rows in the workers' shards. Each
// message is accepted or refused with a reason; a complete job is complete on every worker.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/order/order_cache.h"
#include "engine/plan/plan.h"
#include "server/rows/chunk_ledger.h"
#include "server/rows/job_input.h"
#include "server/rows/row_messages.h"
#include "server/rows/row_router.h"
#include "server/shard/run_message.h"
#include "server/worker/message_rows.h"
#include "tests/fuzz/input_bytes.h"
#include "tests/fuzz/input_spec.h"
#include "tests/fuzz/target.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/payload_message.h"
#include "wire/reason.h"
#include "wire/status.h"

namespace hilbert_ring::fuzz {
namespace {

constexpr int64_t kMaxTokens = 300;
constexpr int64_t kMaxRowBytes = 4096;
constexpr int kMaxMessages = 64;

struct Shard {
  Shard(const Plan& plan, int rank)
      : layout(plan, rank),
        memory(static_cast<size_t>(layout.bytes()) + 64),
        shard(Aligned(memory.data()), layout),
        store(ShardStore::Over(shard)),
        rows(plan.spec, plan, rank, *store, {}) {}

  static std::byte* Aligned(std::byte* memory) {
    return memory + (64 - reinterpret_cast<uintptr_t>(memory) % 64) % 64;
  }

  const ShardLayout layout;
  std::vector<std::byte> memory;
  const HostShard shard;
  std::unique_ptr<ShardStore> store;
  server::MessageWay rows;
};

class Job {
 public:
  Job(const JobSpec& spec, int workers)
      : spec_(spec), plan_(*MakePlan(spec, workers)), ledger_(spec) {
    for (int rank = 0; rank < workers; ++rank)
      shards_.push_back(std::make_unique<Shard>(plan_, rank));
    if (spec.ordering && spec.ordering->coordinate_axes > 0) {
      coordinates_.emplace(spec);
    } else {
      Require(MakeOrder({}), "an order without coordinates can be made");
    }
  }

  const server::ChunkLedger& ledger() const { return ledger_; }

  bool Receive(const v1::Chunk& chunk, const wire::Payload& payload) {
    const absl::Status status = ledger_.Accept(chunk, payload);
    if (!status.ok()) {
      Require(wire::FindReason(wire::ReasonOf(status)) != nullptr,
              "a chunk is refused with a reason");
      return false;
    }
    if (chunk.tensor() == v1::TENSOR_COORDS) {
      coordinates_->Place(chunk, payload);
      return !ledger_.Complete(v1::TENSOR_COORDS) || MakeOrder(coordinates_->values());
    }
    Route(chunk, payload);
    return true;
  }

  void HalfClose() {
    const absl::Status status = ledger_.CheckComplete();
    Require(status.ok() == ledger_.Complete(), "a job is complete when every row has come");
    if (!status.ok()) return;
    for (const auto& shard : shards_) {
      Require(shard->rows.FinishInput().ok(), "every row of a worker has come");
    }
  }

 private:
  static server::RunMessage<v1::RunRequest> Received(const grpc::ByteBuffer& sent) {
    server::RunMessage<v1::RunRequest> message{.buffer = sent, .fields = {}, .payload = {}};
    Require(server::Split(message), "a worker reads what it is sent");
    return message;
  }

  bool MakeOrder(std::span<const int64_t> coords) {
    OrderCache orders(0);
    auto order = orders.Get(spec_, coords);
    if (!order.ok()) return false;
    router_.emplace(spec_, plan_, *std::move(order));
    for (size_t rank = 0; rank < shards_.size(); ++rank) {
      router_->SendOrder(static_cast<int>(rank), pool_, [&](const grpc::ByteBuffer& part) {
        server::RunMessage<v1::RunRequest> message = Received(part);
        Require(shards_[rank]->rows.Take(message.fields, message.payload).ok(),
                "a worker takes its part of the order");
        return true;
      });
    }
    return true;
  }

  void Route(const v1::Chunk& chunk, const wire::Payload& payload) {
    std::map<int, server::RowMessages> messages;
    wire::PayloadReader reader(payload);
    for (const server::RowRun& run :
         router_->Runs(chunk.tensor(), chunk.first_row(), chunk.rows())) {
      messages
          .try_emplace(run.rank, chunk.tensor(), wire::TensorRowBytes(spec_, chunk.tensor()), pool_)
          .first->second.Add(run, reader);
    }
    for (auto& [rank, of_rank] : messages) {
      for (const grpc::ByteBuffer& rows : of_rank.Take()) {
        server::RunMessage<v1::RunRequest> message = Received(rows);
        Require(shards_[rank]->rows.Take(message.fields, message.payload).ok(),
                "a worker takes what it is sent");
      }
    }
  }

  const JobSpec spec_;
  const Plan plan_;
  server::ChunkLedger ledger_;
  std::optional<server::Coordinates> coordinates_;
  std::optional<server::RowRouter> router_;
  wire::SlicePool pool_{server::MostPayloadBytes(plan_.rows, MostRows(spec_))};
  std::vector<std::unique_ptr<Shard>> shards_;
};

std::vector<v1::Tensor> TensorsOf(const JobSpec& spec) {
  std::vector<v1::Tensor> tensors = {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V};
  if (spec.ordering && spec.ordering->coordinate_axes > 0) {
    tensors.insert(tensors.begin(), v1::TENSOR_COORDS);
  }
  return tensors;
}

v1::AttendRequest InputChunk(InputBytes& input, const JobSpec& spec,
                             const server::ChunkLedger& ledger, bool small_coordinates) {
  v1::AttendRequest request;
  v1::Chunk& chunk = *request.mutable_chunk();
  const uint8_t kind = input.Byte();
  v1::Tensor tensor = v1::TENSOR_UNSPECIFIED;
  const std::vector<v1::Tensor> taken_tensors = TensorsOf(spec);
  for (const v1::Tensor taken : taken_tensors) {
    if (!ledger.Complete(taken) && ((kind >> (taken - 1)) & 1) == 0) {
      tensor = taken;
      break;
    }
  }
  if (tensor == v1::TENSOR_UNSPECIFIED) tensor = static_cast<v1::Tensor>(input.Below(8));
  chunk.set_tensor(tensor);
  if (std::ranges::find(taken_tensors, tensor) != taken_tensors.end()) {
    chunk.set_first_row(ledger.Rows(tensor).GapFrom(0).begin);
  }
  const int64_t all = tensor == v1::TENSOR_Q ? spec.tokens : KeyTokens(spec);
  chunk.set_rows(all - chunk.first_row());
  if ((kind & 16) != 0) chunk.set_rows(1 + input.Below(24));
  if ((kind & 32) != 0) chunk.set_first_row(chunk.first_row() + input.Below(16));
  if ((kind & 192) == 192) {
    chunk.set_first_row(input.Integer());
    chunk.set_rows(input.Integer());
  }
  const int64_t begin = std::clamp<int64_t>(chunk.first_row(), 0, all);
  const int64_t rows = std::clamp<int64_t>(chunk.rows(), 0, all - begin);
  std::string payload(static_cast<size_t>(rows * wire::TensorRowBytes(spec, tensor)), '\0');
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i * i + i / 7);
  for (size_t i = 0; tensor == v1::TENSOR_COORDS && small_coordinates && i < payload.size(); ++i) {
    payload[i] = static_cast<char>(i % 4 == 0 ? payload[i] & 31 : 0);
  }
  chunk.set_crc32c(wire::Crc32c(payload));
  if ((kind & 192) == 128) {
    const size_t at = input.Byte();
    switch (input.Below(3)) {
      case 0:
        if (at < payload.size()) payload[at] = static_cast<char>(payload[at] ^ 1);
        break;
      case 1:
        payload.resize(at, 'x');
        chunk.set_crc32c(wire::Crc32c(payload));
        break;
      default:
        payload.push_back('x');
    }
  }
  chunk.set_payload(std::move(payload));
  return request;
}

// Returns false if the coordinator refuses the message. intact: a valid chunk.
bool SplitChunk(grpc::ByteBuffer& buffer, bool intact, v1::AttendRequest& request,
                wire::Payload& payload) {
  if (wire::SplitPayload(buffer, wire::kChunkFields, *request.mutable_chunk(), payload))
    return true;
  Require(!intact, "a chunk splits");
  if (!wire::Parse(buffer, request) || !request.has_chunk()) return false;
  payload = wire::Payload(request.chunk().payload());
  return true;
}

grpc::ByteBuffer Slices(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += size) slices.emplace_back(bytes.substr(at, size));
  return {slices.data(), slices.size()};
}

}  // namespace

void AttendMessages(Bytes bytes) {
  SilenceProtobuf();
  InputBytes input(bytes);
  const int workers = 1 + input.Below(4);
  const bool small_coordinates = input.Below(8) != 0;
  const JobSpec sent = InputSpec(input, 40);
  const auto spec = wire::DecodeJobSpec(wire::EncodeJobSpec(sent));
  Require(spec.ok() && *spec == sent, "a spec survives the wire");
  if (!Validate(*spec).ok() || MostRows(*spec) > kMaxTokens) return;
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V, v1::TENSOR_OUT}) {
    if (wire::TensorRowBytes(*spec, tensor) > kMaxRowBytes) return;
  }
  Job job(*spec, workers);
  for (int messages = 0; messages < kMaxMessages && !input.empty(); ++messages) {
    const uint8_t kind = input.Byte();
    if (kind == 255) return;
    if (kind >= 250) return job.HalfClose();
    v1::AttendRequest request = InputChunk(input, *spec, job.ledger(), small_coordinates);
    std::string wire = request.SerializeAsString();
    if (kind >= 240) wire = input.Text(input.Byte());
    if (kind >= 230 && !wire.empty()) {
      const size_t at = input.Byte() % wire.size();
      wire[at] = static_cast<char>(wire[at] ^ (1 << input.Below(8)));
    }
    grpc::ByteBuffer buffer = Slices(wire, size_t{1} << (4 + kind % 8));
    v1::AttendRequest received;
    wire::Payload payload;
    if (!SplitChunk(buffer, kind < 230, received, payload)) return;
    if (!job.Receive(received.chunk(), payload)) return;
  }
  job.HalfClose();
}

}  // namespace hilbert_ring::fuzz
