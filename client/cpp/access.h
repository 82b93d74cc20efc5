// How a client reaches a service that is not open to everybody: by TLS, and with a token.
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
  std::string ca;           // of the service's certificate; empty: the system's
  std::string cert, key;    // the caller's own; both or none
  std::string server_name;  // in the service's certificate; empty: the server's host
  // A file with the caller's token, read with each call, so that it can be replaced at any time; or
  // the token itself.
  std::string token_file, token;
  bool insecure = false;  // a token may go to another host without TLS
  // While a call is open the service is pinged after so long a silence, 10 s to a day. 0: 10 s, and
  // kIdleKeepalive on channels of ConnectForStream.
  absl::Duration keepalive_interval = absl::ZeroDuration();
  std::map<std::string, std::string> pipes;  // the text of each file that is a pipe, by path
};

// A stream may rest for long with nothing due. Servers and proxies of gRPC's defaults end the
// connection of a client that pings an idle call more often than every 5 minutes.
inline constexpr absl::Duration kIdleKeepalive = absl::Seconds(330);

// Reads those of the files that are pipes, as of <(...), which can be read once. Waits for their
// writers. INVALID_ARGUMENT, as of CheckAccess.
absl::Status ReadPipes(Access& access);

// INVALID_ARGUMENT, naming option and file: one cannot be read, or is not right (wire/pem.h),
// options contradict each other, a name is too long, an interval is out of its range, or a token
// would go over a network in clear text.
absl::Status CheckAccess(const std::string& server, const Access& access);

// INVALID_ARGUMENT: the keepalive interval is out of its range.
absl::Status CheckKeepalive(const Access& access);

// The same of an interval as it was given, which may be no number.
absl::Status WrongKeepalive(const std::string& given);

// Errors: those of its files.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(const Access& access);

// Empty: none. Never part of a message.
absl::StatusOr<std::string> TokenOf(const Access& access);

}  // namespace hilbert_ring::client
