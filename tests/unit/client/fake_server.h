// A gRPC server in the test's own process for a fake service.
#pragma once

#include <memory>
#include <string>

#include "grpcpp/server.h"

namespace hilbert_ring::client {

class FakeServer {
 public:
  // The service must outlive it. port 0: a free one.
  FakeServer(grpc::Service& service, int port);
  ~FakeServer();
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  int port() const { return port_; }
  std::string address() const;  // host:port

 private:
  int port_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace hilbert_ring::client
