// A gRPC server in the test's own process for a fake service.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "wire/codec.h"

namespace hilbert_ring::client {

class FakeServer {
 public:
  // The service must outlive it. port 0: a free one.
  FakeServer(grpc::Service& service, int port) : port_(port) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&service);
    builder.SetMaxReceiveMessageSize(wire::kMaxMessageBytes);
    server_ = builder.BuildAndStart();
  }
  ~FakeServer() { server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1)); }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  int port() const { return port_; }
  // In digits, because c-ares 1.18 leaks memory when it resolves "localhost".
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int port_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace hilbert_ring::client
