#include "server/access/http_access.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hilbert_ring::server {

HttpEndpoint::Handler ForRoles(Callers& callers, std::vector<Role> roles, std::string do_what,
                               std::function<void(const absl::Status& why)> refused,
                               std::function<HttpReply(const Caller&)> reply) {
  return [&callers, roles = std::move(roles), do_what = std::move(do_what),
          refused = std::move(refused),
          reply = std::move(reply)](std::string_view authorization) -> HttpReply {
    const auto caller = callers.OfHttp(authorization);
    const absl::Status status = caller.ok() ? CheckRole(*caller, roles, do_what) : caller.status();
    if (status.ok()) return reply(*caller);
    refused(status);
    return {.status = absl::IsUnauthenticated(status) ? 401 : 403,
            .body = absl::StrCat(status.message(), "\n")};
  };
}

HttpEndpoint::Handler ForPrometheus(Callers& callers,
                                    std::function<void(const absl::Status& why)> refused,
                                    std::function<HttpReply()> reply) {
  return ForRoles(callers, {Role::kObserve, Role::kAdmin}, "see the service's figures",
                  std::move(refused),
                  [reply = std::move(reply)](const Caller&) { return reply(); });
}

}  // namespace hilbert_ring::server
