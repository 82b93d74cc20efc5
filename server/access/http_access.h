// Paths of an HTTP port that callers of some roles alone may see.
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

// 401 where the request shows no token, or none that is known, 403 where its role may not
// `do_what`; `refused` is told why. Where no tokens are asked for all observe. `callers` must
// outlive it.
HttpEndpoint::Handler ForRoles(Callers& callers, std::vector<Role> roles, std::string do_what,
                               std::function<void(const absl::Status& why)> refused,
                               std::function<HttpReply(const Caller&)> reply);

// Of a process's figures: for the roles observe and admin.
HttpEndpoint::Handler ForPrometheus(Callers& callers,
                                    std::function<void(const absl::Status& why)> refused,
                                    std::function<HttpReply()> reply);

}  // namespace hilbert_ring::server
