#include "client/cpp/distinct_files.h"

#include <sys/stat.h>

#include <compare>
#include <filesystem>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/cpp/errors.h"
#include "client/cpp/pending_file.h"
#include "engine/base/return_if_error.h"

namespace hilbert_ring::client {
namespace {

// An existing file by its device and inode, or a missing one by its folder's and its name.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  std::string absent_name;

  auto operator<=>(const Identity&) const = default;
};

// Returns nothing if the folder is missing too: opening the path then fails.
std::optional<Identity> IdentityOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) return Identity{info.st_dev, info.st_ino, ""};
  const std::filesystem::path whole(path);
  const std::string folder = whole.has_parent_path() ? whole.parent_path().string() : ".";
  if (stat(folder.c_str(), &info) != 0) return std::nullopt;
  return Identity{info.st_dev, info.st_ino, whole.filename().string()};
}

struct Place {
  Identity identity;
  std::string text;  // "--out out.npy" (start of a message)
};

// Returns files written in place. Terminals and other devices accept several writers.
std::vector<Identity> IdentitiesInPlace(const OutputPlace& place) {
  std::vector<Identity> identities;
  if (place.descriptor >= 0) {
    identities.push_back({0, 0, absl::StrCat("descriptor ", place.descriptor)});
  }
  struct stat info;
  const bool found = place.descriptor >= 0 ? fstat(place.descriptor, &info) == 0
                                           : stat(place.path.c_str(), &info) == 0;
  if (found && (S_ISREG(info.st_mode) || S_ISFIFO(info.st_mode))) {
    identities.push_back({info.st_dev, info.st_ino, ""});
  }
  return identities;
}

std::vector<Place> PlacesOfOutput(const NamedFile& output) {
  const auto found = FindOutput(output.path);
  if (!found.ok()) return {};
  std::vector<Place> places;
  const std::string text = absl::StrCat(output.name, " ", output.path);
  if (found->in_place) {
    for (const Identity& identity : IdentitiesInPlace(*found)) places.push_back({identity, text});
    return places;
  }
  if (const auto identity = IdentityOf(found->path)) places.push_back({*identity, text});
  const std::string partial = PartialPath(found->path);
  if (const auto identity = IdentityOf(partial)) {
    places.push_back({*identity, absl::StrCat(text, " (written as ", partial, " at first)")});
  }
  return places;
}

absl::Status CheckNamed(const NamedFile& file) {
  const absl::Status status = CheckPath(file.path);
  return WithMessage(status, absl::StrCat(file.name, " ", status.message()));
}

absl::Status SameFile(const Place& output, const std::string& other) {
  return absl::InvalidArgumentError(
      absl::StrCat(output.text, " is the same file as the ", other, "; nothing was written"));
}

}  // namespace

absl::Status CheckDistinct(const std::vector<NamedFile>& inputs,
                           const std::vector<NamedFile>& outputs) {
  std::map<Identity, std::string> seen;  // in messages
  for (const NamedFile& input : inputs) {
    if (input.path.empty()) continue;
    RETURN_IF_ERROR(CheckNamed(input));
    if (const auto identity = IdentityOf(input.path == "-" ? "/dev/stdin" : input.path)) {
      seen.try_emplace(*identity, absl::StrCat("input ", input.name, " ", input.path));
    }
  }
  for (const NamedFile& output : outputs) {
    if (output.path.empty()) continue;
    RETURN_IF_ERROR(CheckNamed(output));
    const std::vector<Place> places = PlacesOfOutput(output);
    for (const Place& place : places) {
      const auto other = seen.find(place.identity);
      if (other != seen.end()) return SameFile(place, other->second);
    }
    for (const Place& place : places) {
      seen.try_emplace(place.identity, absl::StrCat("output ", place.text));
    }
  }
  return absl::OkStatus();
}

}  // namespace hilbert_ring::client
