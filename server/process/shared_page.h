// A page that takes time to make and memory to hold, for all who ask for it: one is made at a time,
// and those who ask shortly after get the same, in the same memory.
//
//   SharedPage page([&] { return ServeMetrics(); }, SystemTime());
//   {"/metrics", [&](std::string_view) { return page.Get(); }}
#pragma once

#include <functional>

#include "server/process/http_endpoint.h"
#include "server/process/shared_look.h"
#include "server/process/time_source.h"

namespace hilbert_ring::server {

// Thread-safe.
class SharedPage {
 public:
  using ProcessorTime = std::function<Clock::duration()>;

  // make: called by one thread at a time. time: outlives it. processor: that the calling thread has
  // had; null: as the system says.
  SharedPage(std::function<HttpReply()> make, const TimeSource& time,
             ProcessorTime processor = nullptr);

  // A quarter of a second old at most, and no older than ten times what it took of a processor: a
  // page that is made at once is always new, and one that is not takes a tenth of a processor.
  HttpReply Get();

 private:
  struct Page {
    HttpReply reply;
    Clock::duration took{0};
  };

  static Page Make(const std::function<HttpReply()>& make, const ProcessorTime& processor);

  SharedLook<Page> look_;
};

}  // namespace hilbert_ring::server
