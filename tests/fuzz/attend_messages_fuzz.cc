// A client's side of Attend, as messages: what the coordinator does with each, from the bytes off
// the network to the rows in the workers' shards and the outputs' tokens, less threads and
// transport. Every message is accepted or refused with the reason that the protocol names; a job is
// complete only when every row has come once, unchanged; then each lies at its slot.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/order/order_cache.h"
#include "engine/plan/plan.h"
#include "server/rows/chunk_ledger.h"
#include "server/rows/coordinates.h"
#include "server/rows/row_messages.h"
#include "server/rows/row_router.h"
#include "server/shard/output_rows.h"
#include "server/shard/run_message.h"
#include "server/worker/shard_rows.h"
#include "tests/fuzz/attend_model.h"
#include "tests/fuzz/input_bytes.h"
#include "tests/fuzz/input_spec.h"
#include "tests/fuzz/row_content.h"
#include "tests/fuzz/split_chunk.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::fuzz {
namespace {

constexpr int64_t kMaxTokens = 300;
constexpr int64_t kMaxRowBytes = 4096;
constexpr int kMaxMessages = 64;

std::string Content(const JobSpec& spec, v1::Tensor tensor, int64_t first, int64_t rows,
                    bool small_coordinates) {
  std::string bytes = RowContent(tensor, first, rows, wire::TensorRowBytes(spec, tensor));
  if (tensor == v1::TENSOR_COORDS && small_coordinates) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(i % 4 == 0 ? bytes[i] & 31 : 0);
    }
  }
  return bytes;
}

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// One worker's shard.
struct Shard {
  Shard(const Plan& plan, int rank)
      : memory(static_cast<std::byte*>(
            std::calloc(1, static_cast<size_t>(ShardLayout(plan, rank).bytes()) + 64))),
        shard(Aligned(memory.get()), ShardLayout(plan, rank)),
        store(ShardStore::Over(shard)),
        rows(plan.spec, plan, rank, *store) {}

  static std::byte* Aligned(std::byte* memory) {
    return memory + (64 - reinterpret_cast<uintptr_t>(memory) % 64) % 64;
  }

  std::unique_ptr<std::byte, FreeMemory> memory;
  const HostShard shard;
  std::unique_ptr<ShardStore> store;
  server::ShardRows rows;
};

class Job {
 public:
  Job(const JobSpec& spec, int workers, bool small_coordinates)
      : spec_(spec),
        small_coordinates_(small_coordinates),
        plan_(*MakePlan(spec, workers)),
        ledger_(spec),
        model_(spec) {
    for (int rank = 0; rank < workers; ++rank) {
      shards_.push_back(std::make_unique<Shard>(plan_, rank));
    }
    if (spec.ordering && spec.ordering->coordinate_axes > 0) {
      coordinates_.emplace(spec);
    } else {
      Require(MakeOrder({}), "an order without coordinates can be made");
    }
  }

  const AttendModel& model() const { return model_; }

  // What comes from here on may say anything, so rows are not compared.
  void ContentIsOpen() { content_known_ = false; }

  // False when the job ends.
  bool Receive(const v1::Chunk& chunk, const wire::Payload& payload) {
    std::string bytes(static_cast<size_t>(payload.bytes()), '\0');
    wire::PayloadReader(payload).Read(bytes.data(), payload.bytes());
    const absl::Status status = ledger_.Accept(chunk, payload);
    const std::string refused = model_.Accept(chunk, bytes);
    Require(status.ok() == refused.empty(), "a chunk is accepted as the protocol says");
    if (!status.ok()) {
      Require(wire::ReasonOf(status) == refused, "a chunk is refused for the right reason");
      return false;
    }
    if (chunk.tensor() == v1::TENSOR_COORDS) {
      coordinates_->Place(chunk, payload);
      if (!ledger_.Complete(v1::TENSOR_COORDS)) return true;
      const bool made = MakeOrder(coordinates_->values());
      Require(made || !small_coordinates_ || !content_known_, "coordinates in range make an order");
      return made;
    }
    Route(chunk, payload);
    return true;
  }

  void HalfClose() {
    const absl::Status status = ledger_.CheckComplete();
    Require(status.ok() == model_.complete(), "a job is complete when every row has come");
    if (!status.ok()) {
      Require(wire::ReasonOf(status) == "CHUNK_MISSING", "missing rows are the reason");
      return;
    }
    std::set<int64_t> tokens;
    for (size_t rank = 0; rank < shards_.size(); ++rank) CheckShard(static_cast<int>(rank), tokens);
    Require(static_cast<int64_t>(tokens.size()) == spec_.tokens, "outputs are of all tokens");
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
    router_.emplace(spec_, plan_.shards, *std::move(order));
    for (size_t rank = 0; rank < shards_.size(); ++rank) {
      router_->SendOrder(static_cast<int>(rank), pool_, [&](const grpc::ByteBuffer& part) {
        server::RunMessage<v1::RunRequest> message = Received(part);
        Require(shards_[rank]->rows.Place(message.fields.order(), message.payload).ok(),
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
        Require(shards_[rank]->rows.Place(message.fields.rows(), message.payload).ok(),
                "a worker takes what it is sent");
      }
    }
  }

  void CheckShard(int rank, std::set<int64_t>& tokens) {
    const Shard& shard = *shards_[rank];
    Require(shard.rows.CheckComplete().ok(), "every row of a worker has come");
    Require(shard.rows.prefix() == shard.store->rows(), "a worker may compute on all its rows");
    const bool keys_ordered = spec_.ordering.has_value();
    const bool queries_ordered = keys_ordered && spec_.ordering->scope == OrderScope::kQkv;
    for (const ShardRange& range : plan_.shards.OfRank(rank)) {
      for (int64_t slot = range.begin; slot < range.end; ++slot) {
        const int64_t row = range.LocalRow(slot);
        for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
          const bool ordered = tensor == v1::TENSOR_Q ? queries_ordered : keys_ordered;
          const int64_t token = ordered ? shard.store->tokens()[row] : slot;
          const std::string expected = Content(spec_, tensor, token, 1, small_coordinates_);
          const auto* at =
              reinterpret_cast<const char*>(shard.store->Row(*wire::TensorKindOf(tensor), row));
          Require(!content_known_ || std::equal(expected.begin(), expected.end(), at),
                  "a row lies at its slot");
        }
      }
    }
    server::OutputRows outputs(plan_, rank, server::SourceOf(shard.shard), false,
                               server::Delivered(spec_.tokens));
    v1::OutputChunk chunk;
    std::string_view payload;
    while (outputs.Next(shard.store->rows(), chunk, payload)) {
      Require(wire::Crc32c(payload) == chunk.crc32c(), "outputs have their checksum");
      for (int64_t i = 0; i < chunk.rows(); ++i) {
        const bool listed = chunk.tokens_size() > 0;
        const int64_t token = listed ? chunk.tokens(static_cast<int>(i)) : chunk.first_token() + i;
        Require(token >= 0 && token < spec_.tokens, "an output is of a token of the job");
        Require(tokens.insert(token).second, "a token's output leaves once");
      }
    }
  }

  const JobSpec spec_;
  const bool small_coordinates_;
  bool content_known_ = true;
  const Plan plan_;
  server::ChunkLedger ledger_;
  AttendModel model_;
  std::optional<server::Coordinates> coordinates_;
  std::optional<server::RowRouter> router_;
  wire::SlicePool pool_{server::MostPayloadBytes(plan_.rows, spec_.tokens)};
  std::vector<std::unique_ptr<Shard>> shards_;
};

// A chunk of rows that are missing, mostly; else of any rows, or with a wrong payload.
v1::AttendRequest InputChunk(InputBytes& input, const JobSpec& spec, const AttendModel& model,
                             bool small_coordinates) {
  v1::AttendRequest request;
  v1::Chunk& chunk = *request.mutable_chunk();
  const uint8_t kind = input.Byte();
  v1::Tensor tensor = v1::TENSOR_UNSPECIFIED;
  for (const auto& [taken, rows] : model.rows()) {  // COORDS first
    if (!model.Complete(taken) && ((kind >> (taken - 1)) & 1) == 0) {
      tensor = taken;
      break;
    }
  }
  if (tensor == v1::TENSOR_UNSPECIFIED) tensor = static_cast<v1::Tensor>(input.Below(8));
  chunk.set_tensor(tensor);
  if (model.rows().contains(tensor)) chunk.set_first_row(model.FirstMissing(tensor));
  chunk.set_rows(spec.tokens - chunk.first_row());
  if ((kind & 16) != 0) chunk.set_rows(1 + input.Below(24));
  if ((kind & 32) != 0) chunk.set_first_row(chunk.first_row() + input.Below(16));
  if ((kind & 192) == 192) {
    chunk.set_first_row(input.Integer());
    chunk.set_rows(input.Integer());
  }
  const int64_t begin = std::clamp<int64_t>(chunk.first_row(), 0, spec.tokens);
  const int64_t rows = std::clamp<int64_t>(chunk.rows(), 0, spec.tokens - begin);
  std::string payload = Content(spec, tensor, begin, rows, small_coordinates);
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

// As it comes off the network: in slices of any length.
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
  if (!Validate(*spec).ok() || spec->tokens > kMaxTokens) return;
  for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V, v1::TENSOR_OUT}) {
    if (wire::TensorRowBytes(*spec, tensor) > kMaxRowBytes) return;
  }
  Job job(*spec, workers, small_coordinates);
  for (int messages = 0; messages < kMaxMessages && !input.empty(); ++messages) {
    const uint8_t kind = input.Byte();
    if (kind == 255) return;  // cancelled
    if (kind >= 250) return job.HalfClose();
    v1::AttendRequest request = InputChunk(input, *spec, job.model(), small_coordinates);
    std::string wire = request.SerializeAsString();
    if (kind >= 230) job.ContentIsOpen();
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
