#include "server/models/model_scan.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {

ModelScan::ModelScan(ModelCatalog& catalog, std::chrono::milliseconds interval,
                     std::chrono::milliseconds patience)
    : catalog_(catalog) {
  watch_.emplace(interval, [this](const std::stop_token&) { Look(); });
  watch_->Wake();
  MutexLock lock(mutex_);
  const bool looked = looked_once_.wait_for(
      lock, patience, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return has_looked_; });
  if (!looked) {
    spdlog::info("--model-dir: its models are still being read and are offered afterwards");
  }
}

ModelScan::~ModelScan() {
  stopping_ = true;
  catalog_.Stop();
}

void ModelScan::AddTo(v1::Heartbeat& heartbeat) const {
  const MutexLock lock(mutex_);
  heartbeat.mutable_models()->Assign(versions_.begin(), versions_.end());
}

void ModelScan::Look() {
  std::vector<v1::ModelVersion> found;
  std::vector<std::string> lines;
  const auto log_once = [&](spdlog::level::level_enum level, std::string line) {
    lines.push_back(std::move(line));
    if (std::ranges::find(logged_, lines.back()) == logged_.end()) {
      spdlog::log(level, "{}", lines.back());
    }
  };
  const ModelCatalog::Listing listing = catalog_.List();
  if (stopping_) return;  // reads were cut short
  if (listing.cut) {
    log_once(spdlog::level::warn,
             absl::StrCat("--model-dir: of more than ", ModelCatalog::kMostModels,
                          " models the first by name are used"));
  }
  for (const std::string& name : listing.misnamed) {
    log_once(spdlog::level::warn,
             absl::StrCat("--model-dir: the folder '", absl::Utf8SafeCEscape(name),
                          "' is ignored: ", CheckModelName(name).message()));
  }
  for (const ModelCatalog::Entry& entry : listing.entries) {
    if (entry.model.ok()) {
      v1::ModelVersion& version = found.emplace_back();
      version.set_name(entry.name);
      version.set_digest(entry.model->digest());
      log_once(spdlog::level::info,
               absl::StrCat("model ", entry.name, ": ", entry.model->digest()));
    } else {
      log_once(spdlog::level::warn, std::string(entry.model.status().message()));
    }
  }
  logged_ = std::move(lines);
  const MutexLock lock(mutex_);
  versions_ = std::move(found);
  has_looked_ = true;
  looked_once_.notify_all();
}

}  // namespace hilbert_ring::server
