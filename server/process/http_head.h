// Checks of a request's head at the HTTP port. The host is checked because of DNS rebinding: a page
// of another site lets its own name lead to this machine, and the browser, which sends that name,
// shows the page the answer.
#pragma once

#include <cstddef>
#include <string>

struct MHD_Connection;

namespace hilbert_ring::server {

struct HttpTarget {
  std::string host;  // with its port, as sent; empty: not given
  std::string path;
};

// target: "/path", or "http://host/path", whose host overrides the header.
HttpTarget HttpTargetOf(const std::string& target, const std::string& host_header);

bool IsLoopbackAuthority(const std::string& host);

// libmicrohttpd's memory for the head of a request, with entries of it, and of the answer.
inline constexpr size_t kHttpConnectionBytes = 64 << 10;
inline constexpr char kHttpHeadTooLarge[] =
    "the request's head is too large, must have 16 KiB or fewer, and few headers and arguments\n";

// Returns whether the head leaves no room for the answer's head in kHttpConnectionBytes.
bool HttpHeadIsTooLarge(MHD_Connection* connection);

void SayHttpHeadIsTooLarge(MHD_Connection* connection);  // in clear text, past libmicrohttpd

}  // namespace hilbert_ring::server
