#include "tests/unit/client/fake_server.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "wire/codec.h"

namespace hilbert_ring::client {

FakeServer::FakeServer(grpc::Service& service, int port) : port_(port) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(),
                           &port_);
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(wire::kMaxMessageBytes);
  server_ = builder.BuildAndStart();
}

FakeServer::~FakeServer() {
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
}

// An address in digits, because c-ares 1.18 leaks memory when it resolves "localhost".
std::string FakeServer::address() const { return absl::StrCat("127.0.0.1:", port_); }

}  // namespace hilbert_ring::client
