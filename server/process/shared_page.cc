#include "server/process/shared_page.h"

#include <time.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace hilbert_ring::server {
namespace {

constexpr SharedLookTimes kTimes{.patience = std::chrono::seconds(10),
                                 .kept = std::chrono::milliseconds(250)};
constexpr int kKeptForCost = 10;

Clock::duration OfThisThread() {
  timespec had = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &had);
  return std::chrono::seconds(had.tv_sec) + std::chrono::nanoseconds(had.tv_nsec);
}

}  // namespace

SharedPage::Page SharedPage::Make(const std::function<HttpReply()>& make,
                                  const ProcessorTime& processor) {
  const Clock::duration before = processor();
  Page page{.reply = make()};
  page.reply.shared = std::make_shared<const std::string>(std::move(page.reply.body));
  page.reply.body.clear();
  page.took = processor() - before;
  return page;
}

SharedPage::SharedPage(std::function<HttpReply()> make, const TimeSource& time,
                       ProcessorTime processor)
    : look_([make = std::move(make),
             processor = processor ? std::move(processor)
                                   : ProcessorTime(OfThisThread)] { return Make(make, processor); },
            kTimes, time, [](const Page& page) { return kKeptForCost * page.took; }) {}

HttpReply SharedPage::Get() {
  const auto page = look_.Ask();
  return page ? page->reply : HttpReply{.status = 503, .body = "the page takes too long to make\n"};
}

}  // namespace hilbert_ring::server
