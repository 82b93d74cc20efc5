#include "server/process/certificate_watch.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <utility>

#include "server/process/regular_file.h"
#include "server/process/tls_files.h"

namespace hilbert_ring::server {
namespace {

constexpr auto kWarnBefore = std::chrono::hours(14 * 24);
constexpr auto kBetweenWarnings = std::chrono::hours(24);
constexpr auto kLookAgain = std::chrono::minutes(1);

using TimePoint = CertificateWatch::SystemClock::time_point;

std::optional<TimePoint> EndOf(const X509& certificate) {
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &end) != 1) return std::nullopt;
  return CertificateWatch::SystemClock::from_time_t(timegm(&end));
}

std::optional<TimePoint> EndOf(const std::string& pem, CertificateWatch::Holds holds) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> text(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  std::optional<TimePoint> end;
  while (true) {
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(
        PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr), &X509_free);
    if (certificate == nullptr) break;
    const std::optional<TimePoint> one = EndOf(*certificate);
    if (!one.has_value()) continue;
    if (!end.has_value()) end = one;
    end = holds == CertificateWatch::Holds::kChain ? std::min(*end, *one) : std::max(*end, *one);
  }
  ERR_clear_error();  // of the end of the text
  return end;
}

}  // namespace

CertificateWatch::CertificateWatch(std::vector<File> files,
                                   std::function<SystemClock::time_point()> now)
    : files_(std::move(files)), now_(std::move(now)) {
  std::erase_if(files_, [](const File& file) { return file.path.empty(); });
  if (files_.empty()) return;
  Look();
  watch_.emplace(kLookAgain, [this](const std::stop_token&) { Look(); });
}

std::optional<CertificateWatch::SystemClock::time_point> CertificateWatch::EndOf(
    const File& file) const {
  const auto pem = ReadRegularFile(file.path, kMostPemBytes);
  if (!pem.ok()) return std::nullopt;
  return server::EndOf(*pem, file.holds);
}

void CertificateWatch::Show(const std::string& name, const std::string& pem) {
  const auto end = server::EndOf(pem, Holds::kChain);
  if (!end.has_value()) return;
  const MutexLock lock(mutex_);
  shown_.insert_or_assign(name, *end);
}

std::map<std::string, double> CertificateWatch::Ends() const {
  const auto seconds = [](SystemClock::time_point end) {
    return std::chrono::duration<double>(end.time_since_epoch()).count();
  };
  std::map<std::string, double> ends;
  for (const File& file : files_) {
    if (const auto end = EndOf(file)) ends.emplace(file.name, seconds(*end));
  }
  const MutexLock lock(mutex_);
  for (const auto& [name, end] : shown_) ends.emplace(name, seconds(end));
  return ends;
}

void CertificateWatch::Look() {
  const SystemClock::time_point now = now_();
  for (const File& file : files_) {
    const auto end = EndOf(file);
    const bool late = !end.has_value() || *end - now < kWarnBefore;
    {
      const MutexLock lock(mutex_);
      if (!late) {
        warned_.erase(file.name);
        continue;
      }
      const auto before = warned_.find(file.name);
      if (before != warned_.end() && now - before->second < kBetweenWarnings) continue;
      warned_.insert_or_assign(file.name, now);
    }
    if (!end.has_value()) {
      spdlog::warn("{}: {} has no readable certificate", file.flag, file.path);
    } else if (*end <= now) {
      spdlog::warn("{}: the certificate in {} has expired", file.flag, file.path);
    } else {
      const auto hours = std::chrono::duration_cast<std::chrono::hours>(*end - now).count();
      spdlog::warn("{}: the certificate in {} expires in {} hours", file.flag, file.path, hours);
    }
  }
}

}  // namespace hilbert_ring::server
