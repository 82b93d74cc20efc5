// A model's folder, read in steps that are left where its file system does not answer.
//
//   ModelReader model(std::move(folder), steps, patience);
//   ASSIGN_OR_RETURN(const auto norm, model.Read(stop, [](const EncoderFolder& folder) {
//     return folder.LoadNorm();
//   }));
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "engine/model/files/encoder_folder.h"
#include "server/models/model_catalog.h"
#include "server/process/file_steps.h"
#include "server/process/job_stop.h"

namespace hilbert_ring::server {

class ModelReader {
 public:
  // Of a step (--stall-timeout), which reads a layer at most; caller: as of PatienceWithModels.
  struct Limits {
    std::chrono::milliseconds step{60'000};
    std::string caller;
  };

  ModelReader(EncoderFolder folder, FileSteps steps, Limits limits)
      : folder_(std::make_shared<EncoderFolder>(std::move(folder))),
        steps_(std::move(steps)),
        limits_(std::move(limits)) {}
  // Its files are closed in a step too.
  ~ModelReader() { steps_.Destroy(std::move(folder_), kCloseLimit); }
  ModelReader(const ModelReader&) = delete;
  ModelReader& operator=(const ModelReader&) = delete;

  // What `read` returns of the folder, an absl::Status or StatusOr. It owns all else that it uses.
  // Errors besides: as of FileSteps::Run, with MODEL_UNUSABLE; the stop's reason.
  template <typename Reading>
  auto Read(const JobStop& stop, Reading read) {
    using Result = std::invoke_result_t<Reading, const EncoderFolder&>;
    Patience patience = PatienceWithModels(limits_.caller, [&stop] { return stop.why(); });
    patience.limit = limits_.step;
    patience.flag = "--stall-timeout";
    return steps_.Run<Result>(patience, [folder = folder_, read = std::move(read)]() -> Result {
      return std::invoke(read, std::as_const(*folder));
    });
  }

 private:
  static constexpr std::chrono::seconds kCloseLimit{1};

  std::shared_ptr<EncoderFolder> folder_;  // read alone
  FileSteps steps_;
  const Limits limits_;
};

}  // namespace hilbert_ring::server
