#include "engine/spec/watched_json.h"

#include <algorithm>
#include <exception>
#include <set>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/return_if_error.h"
#include "engine/spec/field_error.h"

namespace hilbert_ring {
namespace {

using Json = nlohmann::json;

// A spec has four levels: the spec, "ordering", "coords", one row.
constexpr int kMaxDepth = 8;

// Bytes of a caller's text that a message repeats.
constexpr size_t kMaxQuoted = 80;

// Follows the parser: refuses repeated keys and deep nesting, and tracks the current field.
class ParseWatch {
 public:
  explicit ParseWatch(std::string_view what) : what_(what) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (!status_.ok()) return false;
    switch (event) {
      case Json::parse_event_t::object_start:
        keys_.emplace_back();
        [[fallthrough]];
      case Json::parse_event_t::array_start:
        if (depth < kMaxDepth) return true;
        status_ = absl::InvalidArgumentError(
            absl::StrCat(what_, " nests deeper than ", kMaxDepth, " levels", Place()));
        return false;
      case Json::parse_event_t::object_end:
        keys_.pop_back();
        return true;
      case Json::parse_event_t::key:
        field_ = parsed.get_ref<const std::string&>();
        if (keys_.back().insert(field_).second) return true;
        status_ = WithField(absl::InvalidArgumentError(
                                absl::StrCat("field ", Quoted(field_), " is given more than once")),
                            field_.substr(0, kMaxQuoted));
        return false;
      default:
        return true;
    }
  }

  const absl::Status& status() const { return status_; }

  // " (at field ...)", or nothing before the first field.
  std::string Place() const {
    return field_.empty() ? "" : absl::StrCat(" (at field ", Quoted(field_), ")");
  }

 private:
  const std::string what_;
  absl::Status status_;
  std::string field_;
  std::vector<std::set<std::string>> keys_;  // of the open objects
};

}  // namespace

absl::StatusOr<Json> ParseWatchedJson(std::string_view json, std::string_view what) {
  // The JSON library would end the text at a NUL.
  if (json.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(what), " is malformed JSON: it has a NUL"));
  }
  ParseWatch watch(what);
  try {
    Json parsed = Json::parse(json.begin(), json.end(),
                              [&watch](int depth, Json::parse_event_t event, Json& value) {
                                return watch(depth, event, value);
                              });
    RETURN_IF_ERROR(watch.status());
    return parsed;
  } catch (const std::exception& error) {  // from the JSON library, or std::bad_alloc
    RETURN_IF_ERROR(watch.status());
    // The library prefixes its name and error number in brackets.
    std::string_view reason = error.what();
    if (const size_t end = reason.find("] "); reason.starts_with('[') && end != reason.npos) {
      reason.remove_prefix(end + 2);
    }
    constexpr size_t kMaxReason = 240;
    const absl::string_view head(reason.data(), std::min(reason.size(), kMaxReason));
    // Restores quotes and backslashes, which CHexEscape escapes.
    const std::string shown =
        absl::StrReplaceAll(absl::CHexEscape(head), {{"\\'", "'"}, {"\\\"", "\""}, {"\\\\", "\\"}});
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(what), " is malformed JSON", watch.Place(), ": ", shown));
  }
}

std::string Quoted(std::string_view text) {
  const absl::string_view head(text.data(), std::min(text.size(), kMaxQuoted));
  return absl::StrCat("\"", absl::CHexEscape(head), "\"", head.size() < text.size() ? "..." : "");
}

}  // namespace hilbert_ring
