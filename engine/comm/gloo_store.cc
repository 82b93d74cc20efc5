#include "engine/comm/gloo_store.h"

#include <cstring>
#include <stdexcept>

namespace hilbert_ring {
namespace {

void AppendField(std::string& blob, const std::string& field) {
  const uint64_t size = field.size();
  blob.append(reinterpret_cast<const char*>(&size), sizeof(size));
  blob += field;
}

// Moves `blob` on; false at its end or where it is cut short.
bool TakeField(std::string_view& blob, std::string& field) {
  uint64_t size;
  if (blob.size() < sizeof(size)) return false;
  std::memcpy(&size, blob.data(), sizeof(size));
  blob.remove_prefix(sizeof(size));
  if (blob.size() < size) return false;
  field.assign(blob.substr(0, size));
  blob.remove_prefix(size);
  return true;
}

}  // namespace

void GatherStore::set(const std::string& key, const std::vector<char>& data) {
  values_[key] = std::string(data.begin(), data.end());
}

std::vector<char> GatherStore::get(const std::string& key) {
  Gather();
  const auto found = values_.find(key);
  if (found == values_.end()) {
    status_ = absl::InternalError("rendezvous: no peer has set '" + key + "'");
    throw std::runtime_error(status_.ToString());
  }
  return {found->second.begin(), found->second.end()};
}

void GatherStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) get(key);
}

void GatherStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) {
  wait(keys);
}

void GatherStore::Gather() {
  if (gathered_) return;
  std::string own;
  for (const auto& [key, value] : values_) {
    AppendField(own, key);
    AppendField(own, value);
  }
  auto blobs = all_gather_(std::move(own), deadline_);
  if (!blobs.ok()) {
    status_ = blobs.status();
    throw std::runtime_error(status_.ToString());
  }
  for (const std::string& blob : *blobs) {
    std::string_view rest = blob;
    std::string key, value;
    while (TakeField(rest, key) && TakeField(rest, value)) values_[key] = value;
  }
  gathered_ = true;
}

}  // namespace hilbert_ring
