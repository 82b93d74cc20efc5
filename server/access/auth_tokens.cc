#include "server/access/auth_tokens.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/field_error.h"
#include "engine/spec/watched_json.h"
#include "nlohmann/json.hpp"
#include "server/process/regular_file.h"
#include "server/process/tokens.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

constexpr size_t kMostFileBytes = 4 << 20;
constexpr size_t kMostEntries = 10'000;
constexpr size_t kMostNameBytes = 64;
constexpr size_t kMostTokenBytes = 4096;
constexpr absl::string_view kScheme = "Bearer ";
constexpr std::string_view kFields[] = {"name", "role",   "token", "sha256",
                                        "jobs", "tokens", "bytes", "root"};

absl::Status Wrong(const std::string& what) { return absl::InvalidArgumentError(what); }

bool Printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

bool IsField(std::string_view name) {
  return std::find(std::begin(kFields), std::end(kFields), name) != std::end(kFields);
}

// Messages quote only names of fields: the line has a secret.
absl::StatusOr<nlohmann::json> EntryOf(const std::string& line) {
  auto entry = ParseWatchedJson(line, "the line");
  if (const auto twice = FieldOf(entry.status()); twice && IsField(twice->field)) {
    return Wrong(absl::StrCat("has the field ", twice->field, " more than once"));
  }
  if (!entry.ok() || !entry->is_object()) return Wrong("is not a JSON object");
  for (const auto& [field, value] : entry->items()) {
    if (IsField(field)) continue;
    return Wrong(
        "has an unknown field, must be name, role, token, sha256, jobs, tokens, bytes or root");
  }
  return entry;
}

absl::StatusOr<std::string> TextOf(const nlohmann::json& entry, const char* field) {
  const auto found = entry.find(field);
  if (found == entry.end()) return Wrong(absl::StrCat(field, " is missing"));
  if (!found->is_string()) return Wrong(absl::StrCat(field, " must be a string"));
  return found->get<std::string>();
}

absl::StatusOr<int64_t> LimitOf(const nlohmann::json& entry, const char* field) {
  const auto found = entry.find(field);
  if (found == entry.end()) return 0;
  if (!found->is_number_unsigned() || *found < 1 || *found > kMostQuotaBytes) {
    return Wrong(absl::StrCat(field, " must be an integer of 1 to 2^50"));
  }
  return found->get<int64_t>();
}

bool IsFolder(std::string_view path) {
  if (path == ".") return true;
  for (std::string_view rest = path; true;) {
    const size_t slash = rest.find('/');
    const std::string_view step = rest.substr(0, slash);
    if (step.empty() || step == "." || step == ".." || !Printable(step)) return false;
    if (slash == std::string_view::npos) return true;
    rest.remove_prefix(slash + 1);
  }
}

absl::StatusOr<Caller> CallerOf(const nlohmann::json& entry) {
  Caller caller;
  ASSIGN_OR_RETURN(caller.name, TextOf(entry, "name"));
  if (caller.name.empty() || caller.name.size() > kMostNameBytes || !Printable(caller.name)) {
    return Wrong(absl::StrCat("name must have 1 to ", kMostNameBytes,
                              " printable ASCII characters without spaces"));
  }
  caller.turns = caller.name;
  ASSIGN_OR_RETURN(const std::string role, TextOf(entry, "role"));
  bool known = false;
  for (const Role one : {Role::kSubmit, Role::kObserve, Role::kAdmin}) {
    if (NameOf(one) != role) continue;
    caller.role = one;
    known = true;
  }
  if (!known) return Wrong("role must be submit, observe or admin");
  for (const auto& [field, limit] :
       {std::pair("jobs", &caller.quota.jobs), std::pair("tokens", &caller.quota.tokens),
        std::pair("bytes", &caller.quota.bytes)}) {
    ASSIGN_OR_RETURN(*limit, LimitOf(entry, field));
  }
  if (entry.contains("root")) {
    ASSIGN_OR_RETURN(caller.folder, TextOf(entry, "root"));
    if (!IsFolder(caller.folder)) {
      return Wrong(
          "root must be a folder beneath --data-root, without .. and without / at its "
          "ends, or . for all of it");
    }
  }
  return caller;
}

}  // namespace

absl::string_view NameOf(Role role) {
  switch (role) {
    case Role::kSubmit:
      return "submit";
    case Role::kObserve:
      return "observe";
    case Role::kAdmin:
      return "admin";
  }
  return "";
}

absl::Status AuthTokens::AddLine(const std::string& line, Table& table) {
  ASSIGN_OR_RETURN(const nlohmann::json entry, EntryOf(line));
  ASSIGN_OR_RETURN(Caller caller, CallerOf(entry));
  if (entry.contains("token") == entry.contains("sha256")) {
    return Wrong("must have one of token and sha256");
  }
  Entry added{.caller = std::move(caller)};
  if (entry.contains("token")) {
    ASSIGN_OR_RETURN(const std::string token, TextOf(entry, "token"));
    if (token.size() < kLeastTokenBytes || token.size() > kMostTokenBytes || !Printable(token)) {
      return Wrong(absl::StrCat("token must have ", kLeastTokenBytes, " to ", kMostTokenBytes,
                                " printable ASCII characters without spaces"));
    }
    SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), added.digest.data());
  } else {
    ASSIGN_OR_RETURN(const std::string text, TextOf(entry, "sha256"));
    if (text.size() != 64 || !std::all_of(text.begin(), text.end(), absl::ascii_isxdigit)) {
      return Wrong("sha256 must have 64 hexadecimal digits");
    }
    const std::string digest = absl::HexStringToBytes(text);
    std::copy(digest.begin(), digest.end(), added.digest.begin());
  }
  for (const Entry& other : table) {
    if (other.digest == added.digest) return Wrong("has the token of another line");
    if (other.caller.name != added.caller.name) continue;
    if (other.caller.role == added.caller.role && other.caller.quota == added.caller.quota &&
        other.caller.folder == added.caller.folder)
      continue;
    return Wrong("has another role or quota, or root, than another line of its name");
  }
  if (table.size() == kMostEntries)
    return Wrong(absl::StrCat("is beyond ", kMostEntries, " tokens"));
  table.push_back(std::move(added));
  return absl::OkStatus();
}

absl::StatusOr<AuthTokens::Table> AuthTokens::Parse(const std::string& text) {
  Table table;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (stripped.empty() || stripped.front() == '#') continue;
    if (absl::Status status = AddLine(line, table); !status.ok()) {
      return Wrong(absl::StrCat("line ", number, " ", status.message()));
    }
  }
  return table;
}

absl::StatusOr<std::unique_ptr<AuthTokens>> AuthTokens::Read(const std::string& path,
                                                             std::chrono::milliseconds look_again) {
  std::unique_ptr<AuthTokens> tokens(new AuthTokens(path));
  {
    const MutexLock lock(tokens->looking_);
    RETURN_IF_ERROR(tokens->ReadAgain());
  }
  tokens->watch_.emplace(look_again,
                         [watched = tokens.get()](const std::stop_token&) { watched->Look(); });
  return tokens;
}

AuthTokens::~AuthTokens() = default;

// A file replaced during a read has another version at the next look.
absl::Status AuthTokens::ReadAgain() {
  struct stat found = {};
  if (stat(path_.c_str(), &found) != 0) found = {};  // ReadRegularFile returns the error
  const Version version = {.seconds = found.st_mtim.tv_sec,
                           .nanoseconds = found.st_mtim.tv_nsec,
                           .change_seconds = found.st_ctim.tv_sec,
                           .change_nanoseconds = found.st_ctim.tv_nsec,
                           .bytes = found.st_size,
                           .inode = found.st_ino};
  const bool again = Current() != nullptr;
  if (again && version == version_) return absl::OkStatus();
  auto text = ReadRegularFile(path_, kMostFileBytes);
  auto table = text.ok() ? Parse(*text) : text.status();
  if (!table.ok()) {
    return Wrong(absl::StrCat("--auth-token-file: ", path_, " ", table.status().message()));
  }
  version_ = version;  // only of a good file: the next look reads a wrong one again
  logged_ = absl::OkStatus();
  if (again) spdlog::info("--auth-token-file: read again, {} tokens", table->size());
  auto made = std::make_shared<const Table>(*std::move(table));
  const MutexLock lock(mutex_);
  table_ = std::move(made);
  return absl::OkStatus();
}

std::shared_ptr<const AuthTokens::Table> AuthTokens::Current() const {
  const MutexLock lock(mutex_);
  return table_;
}

void AuthTokens::Look() {
  const MutexLock lock(looking_);
  if (absl::Status status = ReadAgain(); !status.ok() && status != std::exchange(logged_, status)) {
    spdlog::error("{}; the tokens stay as they were", std::string(status.message()));
  }
}

absl::StatusOr<Caller> AuthTokens::Find(std::string_view authorization) const {
  if (authorization.empty()) {
    return wire::ErrorOf(wire::reason::kAuthToken, "the service takes calls with a token alone");
  }
  const bool bearer = absl::StartsWithIgnoreCase(
      absl::string_view(authorization.data(), authorization.size()), kScheme);
  const std::string_view token = bearer ? authorization.substr(kScheme.size()) : "";
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  const auto table = Current();
  const Entry* found = nullptr;
  for (const Entry& entry : *table) {
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry;
  }
  if (found == nullptr || token.empty()) {
    return wire::ErrorOf(wire::reason::kAuthToken, "the token is unknown");
  }
  return found->caller;
}

}  // namespace hilbert_ring::server
