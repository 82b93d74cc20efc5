#include "tests/unit/job/fake_client.h"

#include <algorithm>
#include <utility>

#include "tests/support/manual_time.h"
#include "wire/checksum.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

std::vector<float> Numbers(const JobSpec& spec, float step) {
  std::vector<float> numbers(spec.tokens * spec.heads * spec.head_dim);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = 1 + step * static_cast<float>(i);
  return numbers;
}

}  // namespace

FakeClient::FakeClient(v1::AttentionService::Stub& stub, const JobSpec& spec,
                       FakeClientOptions options)
    : spec_(spec),
      options_(std::move(options)),
      q_(Numbers(spec, 1e-6F)),
      k_(Numbers(spec, -1e-6F)),
      v_(Numbers(spec, 1.0F / 1024)),
      stream_(stub.Attend(&context_)),
      reads_(options_.reads),
      out_(v_.size()),
      came_(spec.tokens) {
  v1::AttendRequest request;
  v1::Open& open = *request.mutable_open();
  *open.mutable_spec() = wire::EncodeJobSpec(spec_);
  open.set_job_id(options_.job_id);
  open.set_attempt(options_.attempt);
  open.set_can_resend(options_.can_resend);
  open.set_input_follows(options_.input_follows);
  open.set_one_answer(options_.one_answer);
  stream_->Write(request);
  receiver_ = std::thread([this] { Receive(); });
}

FakeClient::~FakeClient() {
  context_.TryCancel();
  Read();
  receiver_.join();
  if (sender_.joinable()) sender_.join();
}

void FakeClient::Send(v1::Tensor tensor, int64_t first_row, int64_t rows) {
  const std::vector<float>& numbers =
      tensor == v1::TENSOR_Q ? q_ : (tensor == v1::TENSOR_K ? k_ : v_);
  const int64_t row_bytes = wire::TensorRowBytes(spec_, tensor);
  v1::AttendRequest request;
  v1::Chunk& chunk = *request.mutable_chunk();
  chunk.set_tensor(tensor);
  chunk.set_first_row(first_row);
  chunk.set_rows(rows);
  chunk.mutable_payload()->assign(
      reinterpret_cast<const char*>(numbers.data()) + first_row * row_bytes, rows * row_bytes);
  chunk.set_crc32c(wire::Crc32c(chunk.payload()));
  const std::lock_guard lock(writing_);
  stream_->Write(request);
}

void FakeClient::SendAll() {
  sender_ = std::thread([this] {
    const int64_t half = options_.input_follows ? spec_.tokens : spec_.tokens / 2;
    for (const v1::Tensor tensor : {v1::TENSOR_Q, v1::TENSOR_K, v1::TENSOR_V}) {
      Send(tensor, 0, half);
      if (half < spec_.tokens) Send(tensor, half, spec_.tokens - half);
    }
  });
}

void FakeClient::CloseWrites() {
  const std::lock_guard lock(writing_);
  stream_->WritesDone();
}

void FakeClient::Read() {
  const std::lock_guard lock(mutex_);
  reads_ = std::numeric_limits<int>::max();
  changed_.notify_all();
}

void FakeClient::Receive() {
  v1::AttendResponse response;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return reads_ > 0; });
      --reads_;
    }
    if (!stream_->Read(&response)) break;
    if (response.has_resend()) {
      for (const v1::Resend::Range& range : response.resend().ranges()) {
        Send(response.resend().tensor(), range.first_row(), range.rows());
      }
    }
    const std::lock_guard lock(mutex_);
    ++messages_;
    if (response.has_admitted()) admitted_ = response.admitted().workers();
    if (response.has_resend()) ++resends_;
    if (response.has_report()) report_ = response.report();
    for (const v1::OutputChunk& output : response.outputs()) Keep(output);
    if (response.has_output()) Keep(response.output());
  }
  const grpc::Status status = stream_->Finish();
  const std::lock_guard lock(mutex_);
  status_ = wire::FromGrpc(status);
  ended_ = true;
}

void FakeClient::Keep(const v1::OutputChunk& chunk) {
  if (chunk.tensor() != v1::TENSOR_OUT) return;
  const int64_t width = spec_.heads * spec_.value_dim;
  const auto* const numbers = reinterpret_cast<const float*>(chunk.payload().data());
  for (int64_t i = 0; i < chunk.rows(); ++i) {
    const int64_t token =
        chunk.tokens_size() > 0 ? chunk.tokens(static_cast<int>(i)) : chunk.first_token() + i;
    ++came_[token];
    std::copy_n(numbers + i * width, width, out_.begin() + token * width);
  }
}

absl::Status FakeClient::Await() {
  if (!Eventually([this] { return ended(); })) return absl::InternalError("the job does not end");
  return Get(status_);
}

int64_t FakeClient::WrongRows() const {
  const std::lock_guard lock(mutex_);
  const int64_t width = spec_.heads * spec_.value_dim;
  int64_t wrong = 0;
  for (int64_t token = 0; token < spec_.tokens; ++token) {
    const auto row = out_.begin() + token * width;
    if (came_[token] == 0 || !std::equal(row, row + width, v_.begin() + token * width)) ++wrong;
  }
  return wrong;
}

int64_t FakeClient::RepeatedRows() const {
  const std::lock_guard lock(mutex_);
  return std::count_if(came_.begin(), came_.end(), [](int times) { return times > 1; });
}

int64_t FakeClient::rows() const {
  const std::lock_guard lock(mutex_);
  return std::count_if(came_.begin(), came_.end(), [](int times) { return times > 0; });
}

}  // namespace hilbert_ring::testing
