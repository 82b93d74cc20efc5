#include "server/job/job_files.h"

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {

absl::StatusOr<std::unique_ptr<JobFiles>> JobFiles::Open(DataRoot* root, const Caller& caller,
                                                         const v1::Open& open, const JobWork& work,
                                                         KeptThreads& threads,
                                                         std::chrono::milliseconds limit) {
  if (root == nullptr) {
    return wire::ErrorOf(wire::reason::kNoDataRoot,
                         "files: the service takes none, for it has no --data-root");
  }
  ASSIGN_OR_RETURN(auto files, NamedFiles::Open(*root, caller, open, FileArraysOf(work)));
  return std::unique_ptr<JobFiles>(new JobFiles(std::move(files), threads, limit));
}

template <typename Result>
Result JobFiles::Step(std::function<Result(NamedFiles&)> step) {
  RETURN_IF_ERROR(gone_);
  const auto result = std::make_shared<std::promise<Result>>();
  std::future<Result> answer = result->get_future();
  KeptThreads::Task task = threads_.Start(
      [result, files = files_, step = std::move(step)] { result->set_value(step(*files)); });
  if (answer.wait_for(limit_) == std::future_status::ready) {
    task.Join();  // its hold on the files ends
    return answer.get();
  }
  gone_ = wire::ErrorOf(
      wire::reason::kDataRootGone,
      absl::StrCat("--data-root: no answer within ", limit_.count(), " ms (--stall-timeout)"));
  return gone_;
}

absl::Status JobFiles::BeginExecution() {
  return Step<absl::Status>([](NamedFiles& files) { return files.BeginExecution(); });
}

absl::Status JobFiles::ReadChunks(v1::Tensor tensor, const Visit& visit) {
  const int64_t rows = files_->RowsOf(tensor);
  for (int64_t first = 0; first < rows;) {
    ASSIGN_OR_RETURN(const FilePiece piece, Step<absl::StatusOr<FilePiece>>([=](NamedFiles& files) {
                       return files.ReadPiece(tensor, first);
                     }));
    RETURN_IF_ERROR(visit(piece.chunk, wire::Payload(piece.payload)));
    first += piece.chunk.rows();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> JobFiles::ReadOutput(v1::Tensor tensor, int64_t row) {
  return Step<absl::StatusOr<std::string>>(
      [=](NamedFiles& files) { return files.ReadOutput(tensor, row); });
}

}  // namespace hilbert_ring::server
