#include "server/models/model_catalog.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kLongestName = 128;
constexpr size_t kDigestLength = 64;

bool IsOfName(char c) { return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-'; }

absl::Status NotFound(const std::string& name, const std::string& why) {
  return wire::ErrorOf(wire::reason::kModelNotFound, absl::StrCat("model ", name, ": ", why));
}

}  // namespace

absl::Status CheckModelName(std::string_view name) {
  if (!name.empty() && name.size() <= kLongestName && name.front() != '.' &&
      std::ranges::all_of(name, IsOfName)) {
    return absl::OkStatus();
  }
  return wire::ErrorOf(
      wire::reason::kInvalidSpec,
      absl::StrCat("model: a name of ", name.size(), " characters, must be 1 to ", kLongestName,
                   " letters, digits, '.', '_' and '-', and not begin with '.'"));
}

absl::StatusOr<EncoderFolder> ModelCatalog::Open(const std::string& name) {
  RETURN_IF_ERROR(CheckModelName(name));
  if (folder_.empty()) return NotFound(name, "the service has no models (--model-dir)");
  const std::string path = absl::StrCat(folder_, "/", name);
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    return NotFound(name, "--model-dir has no folder of this name");
  }
  std::shared_ptr<const EncoderVersion> known;
  {
    const MutexLock lock(versions_mutex_);
    if (const auto found = versions_.find(name); found != versions_.end()) known = found->second;
  }
  auto folder = EncoderFolder::Open(path, digests_, known);
  if (folder.ok()) {
    const MutexLock lock(versions_mutex_);
    if (versions_.size() >= kMostModels && !versions_.contains(name)) versions_.clear();
    versions_.insert_or_assign(name, folder->version());
    return folder;
  }
  const bool passes = absl::IsUnavailable(folder.status()) || absl::IsCancelled(folder.status());
  const absl::StatusCode code =
      passes ? absl::StatusCode::kUnavailable : absl::StatusCode::kFailedPrecondition;
  return wire::WithReason(
      absl::Status(code, absl::StrCat("model ", name, ": ", folder.status().message())),
      wire::reason::kModelUnusable);
}

absl::StatusOr<EncoderFolder> ModelCatalog::Open(const std::string& name,
                                                 const std::string& digest) {
  ASSIGN_OR_RETURN(EncoderFolder folder, Open(name));
  if (digest.empty() || digest == folder.digest()) return folder;
  return wire::ErrorOf(wire::reason::kModelChanged,
                       absl::StrCat("model ", name, " has the digest ", folder.digest(),
                                    ", must be ", absl::CEscape(digest.substr(0, kDigestLength))));
}

std::vector<std::string> ModelCatalog::Names(std::vector<std::string>& misnamed) const {
  std::vector<std::string> names;
  if (folder_.empty()) return names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    std::error_code unreadable;
    if (!entry->is_directory(unreadable)) continue;
    if (CheckModelName(name).ok()) {
      names.push_back(std::move(name));
    } else if (std::filesystem::exists(entry->path() / kConfigFile, unreadable)) {
      misnamed.push_back(std::move(name));
    }
  }
  std::ranges::sort(names);
  std::ranges::sort(misnamed);
  return names;
}

ModelCatalog::Listing ModelCatalog::List() {
  const MutexLock lock(listing_);
  Listing listing;
  std::vector<std::string> names = Names(listing.misnamed);
  listing.cut = names.size() > kMostModels;
  if (listing.cut) names.resize(kMostModels);
  for (std::string& name : names) {
    auto model = Open(name);
    listing.entries.push_back({.name = std::move(name), .model = std::move(model)});
  }
  return listing;
}

}  // namespace hilbert_ring::server
