// What the HTTP port looks at in the head of a request, besides its path.
//
// The host: a page of another site may have its own name lead to this machine (DNS rebinding). The
// browser then sends that name, and shows the page the answer.
#pragma once

#include <cstddef>
#include <string>

struct MHD_Connection;

namespace hilbert_ring::server {

struct HttpTarget {
  std::string host;  // with its port, as it was sent; empty: the request names none
  std::string path;
};

// target: "/path", or "http://host/path", whose host goes before that of the header.
HttpTarget HttpTargetOf(const std::string& target, const std::string& host_header);

// Whether it is a name or an address of the loopback interface, with or without a port.
bool IsLoopbackAuthority(const std::string& host);

// Memory of libmicrohttpd for a request's head, a copy of its cookies, an entry for each header,
// cookie and argument, and the head of the answer. Pages that are not used take no memory.
inline constexpr size_t kHttpConnectionBytes = 64 << 10;
inline constexpr char kHttpHeadTooLarge[] =
    "the request's head is too large, must have 16 KiB or fewer, and few headers and arguments\n";

// Of a head that libmicrohttpd has taken: there may be no room for the head of an answer.
bool HttpHeadIsTooLarge(MHD_Connection* connection);

// Answers so in clear text, past libmicrohttpd.
void SayHttpHeadIsTooLarge(MHD_Connection* connection);

}  // namespace hilbert_ring::server
