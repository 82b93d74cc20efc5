// Paths of an HTTP port that only callers of some roles may see.
//
//   {"/metrics", ForRoles(callers, {Role::kObserve, Role::kAdmin}, "see the service's figures",
//                         [](const absl::Status& why) { ... },
//                         [](const Caller&) { return HttpReply{...}; })}
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/access/caller.h"
#include "server/access/callers.h"
#include "server/process/http_endpoint.h"

namespace hilbert_ring::server {

// Replies 401 to a request without a valid token, 403 if its role may not `do_what`, and calls
// `refused` with the error. `callers` must outlive it.
HttpEndpoint::Handler ForRoles(Callers& callers, std::vector<Role> roles, std::string do_what,
                               std::function<void(const absl::Status& why)> refused,
                               std::function<HttpReply(const Caller&)> reply);

HttpEndpoint::Handler ForPrometheus(Callers& callers,
                                    std::function<void(const absl::Status& why)> refused,
                                    std::function<HttpReply()> reply);

}  // namespace hilbert_ring::server
