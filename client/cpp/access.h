// TLS and token of a client, if the service restricts access.
//
//   Access access{.tls = true, .ca = "ca.crt", .token_file = "token"};
//   if (absl::Status status = CheckAccess("coordinator:8001", access); !status.ok()) ...
//   Connect("coordinator:8001", access);
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/security/credentials.h"

namespace hilbert_ring::client {

// Files are in PEM. They are read when a connection is made.
struct Access {
  bool tls = false;
  std::string ca;           // authority of the service's certificate; empty: the system's
  std::string cert, key;    // the caller's own; both or neither
  std::string server_name;  // in the service's certificate; empty: the server's host
  // The caller's token, or its file, which is read again with each call.
  std::string token_file, token;
  bool insecure = false;  // allows a token to another host without TLS
  // Silence on an open call after which the client pings, 10 s to a day. 0: 10 s, and
  // kIdleKeepalive on channels of ConnectForStream.
  absl::Duration keepalive_interval = absl::ZeroDuration();
  std::map<std::string, std::string> pipes;  // the text of each file that is a pipe, by path
};

// A stream may be silent for long. Servers and proxies with gRPC's defaults end the connection of a
// client that pings an idle call more often than every 5 minutes.
inline constexpr absl::Duration kIdleKeepalive = absl::Seconds(330);

// Reads files that are pipes, as of <(...), into `pipes`. INVALID_ARGUMENT as in CheckAccess.
absl::Status ReadPipes(Access& access);

// INVALID_ARGUMENT, with option and file: a file cannot be read or is invalid (wire/pem.h), or
// options contradict each other. Also if a name is too long, an interval is out of its range, or a
// token would travel in clear text.
absl::Status CheckAccess(const std::string& server, const Access& access);

absl::Status CheckKeepalive(const Access& access);

// given: the interval's text, which may be no number.
absl::Status WrongKeepalive(const std::string& given);

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(const Access& access);

// Returns the token, or "" without one. Messages never contain it.
absl::StatusOr<std::string> TokenOf(const Access& access);

}  // namespace hilbert_ring::client
