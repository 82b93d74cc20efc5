// Round trips of a message between two processes of one host: by gRPC, as between a coordinator and
// a worker, and by shared memory. Blocks of trips are interleaved, so that drift affects all ways.
//
//   hop_bench                            2,000 trips of each way and length
//   hop_bench --trips 10000 --apart      each process on its own processor
//   hop_bench --serve                    only the answering process (bench/hop_bench.py)
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "bench/measure.h"
#include "bench/or_fail.h"
#include "bench/row_printer.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/impl/codegen/rpc_service_method.h"
#include "grpcpp/support/method_handler.h"
#include "server/process/grpc_endpoint.h"
#include "wire/polled_stream.h"
#include "wire/raw_stream.h"

namespace hilbert_ring::bench {
namespace {

using Buffer = grpc::ByteBuffer;
using Clock = std::chrono::steady_clock;
using Rpc = grpc::internal::RpcMethod;

constexpr char kUnary[] = "/hop.Echo/Unary", kStream[] = "/hop.Echo/Stream";
constexpr int kLengths[] = {64, 16 << 10};
constexpr int kBlocks = 20;

// bench/hop_bench.py has the same offsets.
struct Shared {
  alignas(64) std::atomic<uint32_t> asked;     // requests so far
  alignas(64) std::atomic<uint32_t> answered;  // answers so far
  alignas(64) uint32_t bytes;
  alignas(64) char request[16 << 10];
  char answer[16 << 10];
};

void Raise(std::atomic<uint32_t>& word) {
  word.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Await(std::atomic<uint32_t>& word, uint32_t old) {
  while (word.load(std::memory_order_acquire) == old) {
    syscall(SYS_futex, &word, FUTEX_WAIT, old, nullptr, nullptr, 0);
  }
}

class EchoService : public grpc::Service {
  using Unary = grpc::internal::RpcMethodHandler<EchoService, Buffer, Buffer>;
  using Stream = grpc::internal::BidiStreamingHandler<EchoService, Buffer, Buffer>;

 public:
  EchoService() {
    const auto answer = [](auto*, auto*, const Buffer* request, Buffer* same) {
      *same = *request;
      return grpc::Status::OK;
    };
    const auto answer_each = [](auto*, auto*, grpc::ServerReaderWriter<Buffer, Buffer>* stream) {
      Buffer message;
      while (stream->Read(&message) && stream->Write(message)) continue;
      return grpc::Status::OK;
    };
    using grpc::internal::RpcServiceMethod;
    AddMethod(new RpcServiceMethod(kUnary, Rpc::NORMAL_RPC, new Unary(answer, this)));
    AddMethod(new RpcServiceMethod(kStream, Rpc::BIDI_STREAMING, new Stream(answer_each, this)));
  }
};

// Answers until its parent ends. Writes "127.0.0.1:PORT PATH_OF_THE_SHARED_MEMORY" first.
void Serve(Shared& shared, int memory, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  EchoService service;
  const auto endpoint = OrFail(
      server::StartGrpc({.host = "127.0.0.1", .max_threads = 64, .reflection = false}, {&service}));
  dprintf(output, "127.0.0.1:%d /proc/%d/fd/%d\n", endpoint.port, getpid(), memory);
  for (uint32_t trip = 0;; ++trip) {
    Await(shared.asked, trip);
    std::memcpy(shared.answer, shared.request, shared.bytes);
    Raise(shared.answered);
  }
}

Buffer BufferOf(const std::string& message) {
  const grpc::Slice slice(message);
  return Buffer(&slice, 1);
}

std::string StringOf(const Buffer& buffer) {
  grpc::Slice slice;
  (void)buffer.DumpToSingleSlice(&slice);
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

struct Way {
  std::string name;
  std::function<std::string(const std::string&)> trip;  // returns the answer
};

void RunBlock(const Way& way, int bytes, int trips, std::vector<double>& microseconds) {
  std::string message(bytes, 'x');
  for (int trip = 0; trip < trips; ++trip) {
    std::memcpy(message.data(), &trip, sizeof(trip));  // each trip has its own answer
    const Clock::time_point start = Clock::now();
    const std::string answer = way.trip(message);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    if (answer != message) throw std::runtime_error(way.name + ": no answer, or a wrong one");
    microseconds.push_back(took.count());
  }
}

void Measure(const std::vector<Way>& ways, int trips) {
  std::vector<std::vector<double>> times(ways.size() * std::size(kLengths));
  for (int block = 0; block <= kBlocks; ++block) {
    for (size_t i = 0; i < times.size(); ++i) {
      const int bytes = kLengths[i / ways.size()];
      RunBlock(ways[i % ways.size()], bytes, (trips - 1) / kBlocks + 1, times[i]);
      if (block == 0) times[i].clear();  // warm-up
    }
  }
  double load = 0;
  getloadavg(&load, 1);
  std::printf("%s; load %.1f\n\n", MachineLine().c_str(), load);
  const RowPrinter table({"C++, by", "bytes", "trips", "median us", "10th percentile", "90th"});
  for (size_t i = 0; i < times.size(); ++i) {
    std::ranges::sort(times[i]);
    const auto tenth = [&](size_t n) {
      return Number(times[i][n * (times[i].size() - 1) / 10], 1);
    };
    table.Print({ways[i % ways.size()].name, absl::StrCat(kLengths[i / ways.size()]),
                 absl::StrCat(times[i].size()), tenth(5), tenth(1), tenth(9)});
  }
}

void Run(Shared& shared, const std::string& address, int trips) {
  // Like a coordinator's, this server's pollers also serve the caller.
  const auto endpoint = OrFail(server::StartGrpc({.host = "127.0.0.1", .max_threads = 64}, {}));
  const auto channel = server::Dial(address, std::chrono::seconds(10));
  grpc::ClientContext raw_context, polled_context;
  raw_context.set_initial_metadata_corked(true);
  polled_context.set_initial_metadata_corked(true);
  const auto raw = wire::OpenRawStream(*channel, kStream, raw_context);
  wire::PolledStream polled(*channel, kStream, polled_context);
  const auto call = [&](const std::string& message) {
    grpc::ClientContext context;
    Buffer answer;
    const Rpc method(kUnary, Rpc::NORMAL_RPC);
    grpc::internal::BlockingUnaryCall(channel.get(), method, &context, BufferOf(message), &answer);
    return StringOf(answer);
  };
  const auto by_raw = [&](const std::string& message) {
    Buffer answer;
    if (raw->Write(BufferOf(message))) raw->Read(&answer);
    return StringOf(answer);
  };
  const auto by_polled = [&](const std::string& message) {
    Buffer answer;
    if (polled.Write(BufferOf(message))) {
      polled.Read(answer, std::chrono::system_clock::time_point::max());
    }
    return StringOf(answer);
  };
  const auto by_futex = [&](const std::string& message) {
    shared.bytes = message.size();
    std::memcpy(shared.request, message.data(), message.size());
    const uint32_t before = shared.answered;
    Raise(shared.asked);
    Await(shared.answered, before);
    return std::string(shared.answer, message.size());
  };
  Measure({{"gRPC unary call", call},
           {"gRPC stream (wire/raw_stream.h)", by_raw},
           {"polled stream (wire/polled_stream.h)", by_polled},
           {"shared memory with a futex", by_futex}},
          trips);
  raw->WritesDone();
  raw->Finish();
}

void StayOn(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) throw std::runtime_error("sched_setaffinity");
}

void Main(bool only_serve, bool apart, int trips) {
  const int memory = memfd_create("hop_bench", MFD_CLOEXEC);
  int pipes[2];
  if (ftruncate(memory, sizeof(Shared)) != 0 || pipe(pipes) != 0) throw std::runtime_error("pipe");
  void* mapped = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (mapped == MAP_FAILED) throw std::runtime_error("mmap");
  auto& shared = *static_cast<Shared*>(mapped);  // zeros
  const pid_t child = only_serve ? 0 : fork();
  if (apart) StayOn(child == 0 ? 1 : 0);
  if (child == 0) Serve(shared, memory, only_serve ? STDOUT_FILENO : pipes[1]);
  close(pipes[1]);
  char address[64] = "";
  if (std::fscanf(fdopen(pipes[0], "r"), "%63s", address) != 1) throw std::runtime_error("fork");
  Run(shared, address, trips);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace hilbert_ring::bench

int main(int argc, char** argv) {
  bool only_serve = false, apart = false;
  int trips = 2000;
  CLI::App app("Round trips between two processes of one host.");
  app.add_flag("--serve", only_serve, "Run only the answering process");
  app.add_flag("--apart", apart, "Run each process on its own processor");
  app.add_option("--trips", trips, "Trips of each way and length")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    hilbert_ring::bench::Main(only_serve, apart, trips);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hop_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
