#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/service.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_job.h"
#include "tests/security/tls_fixture.h"
#include "tests/service/raw_call.h"
#include "tests/support/http_get.h"
#include "tests/support/plain_spec.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

// All tokens contain it, so that any leak is found.
constexpr char kMark[] = "never-to-be-seen";

std::string TokenOf(const std::string& name) { return absl::StrCat(kMark, "-token-of-", name); }

std::string Line(const std::string& name, const std::string& role, const std::string& token,
                 const std::string& quota = "") {
  return absl::StrCat(R"({"name": ")", name, R"(", "role": ")", role, R"(", "token": ")", token,
                      "\"", quota, "}\n");
}

class Tokens : public TlsFixture {
 protected:
  void Write(const std::string& lines) {
    std::ofstream(folder_ / "tokens.new") << lines;
    std::filesystem::rename(folder_ / "tokens.new", folder_ / "tokens");
  }

  void Start() {
    auto service = StartSecured(
        {.arguments = {"--tls-cert=" + service_.cert, "--tls-key=" + service_.key,
                       "--auth-token-file=" + (folder_ / "tokens"), "--log-level=debug"},
         .workers = 2,
         .place = WorkerPlace::kLocal});
    ASSERT_TRUE(service.ok()) << service.status();
    started_ = *std::move(service);
  }

  client::Access With(const std::string& token) const {
    return {.tls = true, .ca = ca_, .token = token};
  }
  client::Access As(const std::string& name) const { return With(TokenOf(name)); }
  std::shared_ptr<grpc::Channel> ChannelAs(const std::string& name) const {
    return client::Connect(started_->address(), As(name));
  }
  std::vector<std::string> JobsSeenBy(const std::string& name) const {
    const auto jobs = client::RequestJobs(ChannelAs(name));
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    std::vector<std::string> seen;
    if (!jobs.ok()) return seen;
    for (const v1::Job& job : jobs->jobs()) {
      seen.push_back(absl::StrCat(job.caller(), "/", job.job_id()));
    }
    return seen;
  }

  std::string PageSeenBy(const std::string& name) const {
    const auto page = HttpGet({.port = started_->http_port(),
                               .path = "/",
                               .ca = ca_,
                               .authorization = absl::StrCat("Bearer ", TokenOf(name))});
    EXPECT_TRUE(page.ok()) << page.status();
    return page.ok() ? page->body : "";
  }

  std::unique_ptr<Cluster> started_;
};

using wire::ReasonOf;

class OpenJob {
 public:
  OpenJob(const std::shared_ptr<grpc::Channel>& channel, const std::string& id, int64_t tokens)
      : stub_(v1::AttentionService::NewStub(channel)) {
    v1::AttendRequest request;
    v1::Open& open = *request.mutable_open();
    *open.mutable_spec() = wire::EncodeJobSpec(PlainSpec({.tokens = tokens}));
    open.set_job_id(id);
    call_.Write(request);
    admitted_ = call_.AwaitAdmitted();
  }
  bool admitted() const { return admitted_; }
  absl::Status Finish() { return call_.Finish(); }
  bool retry_after() const { return call_.retry_after_ms().has_value(); }

 private:
  const std::unique_ptr<v1::AttentionService::Stub> stub_;
  RawCall call_{*stub_, std::chrono::seconds(120)};
  bool admitted_ = false;
};

TEST_F(Tokens, SeparateCallersJobsAndRoles) {
  Write(Line("lab", "submit", TokenOf("lab")) + Line("other", "submit", TokenOf("other")) +
        Line("eye", "observe", TokenOf("eye")) + Line("root", "admin", TokenOf("root")));
  Start();
  const JobEnd end = RunJob(started_->address(), SmallJob(1), {.access = As("lab")});
  EXPECT_EQ(end.verdict, Verdict::kRight) << end.status << end.what;

  for (const auto& [access, why] :
       {std::pair(With(""), "without"), std::pair(With("a-token-of-nobody-at-all"), "wrong")}) {
    const auto refused =
        client::RequestCluster(client::Connect(started_->address(), access)).status();
    EXPECT_TRUE(absl::IsUnauthenticated(refused)) << why << refused;
    EXPECT_EQ(ReasonOf(refused), "AUTH_TOKEN");
    const JobEnd job = RunJob(started_->address(), SmallJob(1), {.access = access});
    EXPECT_EQ(job.reason, "AUTH_TOKEN") << why << job.status;
    EXPECT_EQ(job.attempts, 1) << "the client does not retry";
  }

  OpenJob of_lab(ChannelAs("lab"), "same", 1000), of_other(ChannelAs("other"), "same", 1000);
  ASSERT_TRUE(of_lab.admitted() && of_other.admitted()) << "each caller has its own ids";
  EXPECT_THAT(JobsSeenBy("lab"), ::testing::ElementsAre("lab/same"));
  EXPECT_THAT(JobsSeenBy("other"), ::testing::ElementsAre("other/same"));
  EXPECT_THAT(JobsSeenBy("eye"), ::testing::ElementsAre("lab/same", "other/same"));
  EXPECT_THAT(JobsSeenBy("root"), ::testing::ElementsAre("lab/same", "other/same"));
  {
    OpenJob secret(ChannelAs("other"), "secret", 1000);
    EXPECT_THAT(PageSeenBy("eye"), AllOf(HasSubstr("secret"), HasSubstr("same")));
    EXPECT_THAT(PageSeenBy("lab"), AllOf(HasSubstr("same"), Not(HasSubstr("secret"))));
    const auto cluster = client::RequestCluster(ChannelAs("lab"));
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    EXPECT_THAT(cluster->DebugString(), Not(HasSubstr("secret"))) << "nor in workers and rings";
  }

  EXPECT_EQ(RunJob(started_->address(), SmallJob(1), {.access = As("eye")}).reason, "ROLE");
  EXPECT_EQ(ReasonOf(client::RequestCancel(ChannelAs("eye"), "same")), "ROLE");
  EXPECT_EQ(ReasonOf(client::RequestCancel(ChannelAs("lab"), "none")), "JOB_NOT_FOUND");
  EXPECT_EQ(ReasonOf(client::RequestCancel(ChannelAs("lab"), "same", "other")), "ROLE");
  EXPECT_EQ(ReasonOf(client::RequestCancel(ChannelAs("root"), "same")), "JOB_NOT_FOUND");
  EXPECT_TRUE(client::RequestCancel(ChannelAs("lab"), "same").ok());
  EXPECT_EQ(ReasonOf(of_lab.Finish()), "CANCELLED_BY_CALLER");
  EXPECT_THAT(JobsSeenBy("eye"), ::testing::Contains("other/same")) << "it was not touched";
  EXPECT_TRUE(client::RequestCancel(ChannelAs("root"), "same", "other").ok());
  EXPECT_THAT(std::string(of_other.Finish().message()), HasSubstr("cancelled by root"));
}

TEST_F(Tokens, HaveQuotas) {
  Write(Line("lab", "submit", TokenOf("lab"), R"(, "jobs": 2, "tokens": 3000)") +
        Line("other", "submit", TokenOf("other")));
  Start();
  OpenJob first(ChannelAs("lab"), "a", 1000);
  ASSERT_TRUE(first.admitted());
  {
    OpenJob many(ChannelAs("lab"), "b", 2001);
    const absl::Status status = many.Finish();
    EXPECT_EQ(ReasonOf(status), "QUOTA") << status;
    EXPECT_TRUE(many.retry_after()) << "the refusal has a retry-after";
    OpenJob never(ChannelAs("lab"), "b", 3001);
    EXPECT_EQ(ReasonOf(never.Finish()), "OVER_QUOTA");
  }
  {
    OpenJob second(ChannelAs("lab"), "b", 2000);
    ASSERT_TRUE(second.admitted());
    OpenJob third(ChannelAs("lab"), "c", 8);
    EXPECT_EQ(ReasonOf(third.Finish()), "QUOTA");
    OpenJob of_other(ChannelAs("other"), "c", 8000);
    EXPECT_TRUE(of_other.admitted());
  }
  // An ended job no longer counts; the client library retries until then.
  const JobEnd end = RunJob(started_->address(), SmallJob(2), {.access = As("lab")});
  EXPECT_EQ(end.verdict, Verdict::kRight) << end.status << end.what;
}

// A stream counts as a job of an epoch's size, which fits its caller's quota.
TEST_F(Tokens, HaveQuotasOfStreams) {
  Write(Line("lab", "submit", TokenOf("lab"), R"(, "jobs": 2, "tokens": 3000)") +
        Line("eye", "observe", TokenOf("eye")));
  Start();
  const auto open = [this](const std::string& name, int64_t epoch_tokens, const auto& then) {
    const auto stub = v1::AttentionService::NewStub(ChannelAs(name));
    RawCall call(*stub, std::chrono::seconds(60), RawCall::Method::kAttendStream);
    v1::AttendRequest request;
    v1::Open& opened = *request.mutable_open();
    *opened.mutable_spec() = wire::EncodeJobSpec(PlainSpec({.tokens = 0, .segment = 64}));
    opened.set_job_id("stream");
    opened.set_epoch_tokens(epoch_tokens);
    call.Write(request);
    v1::AttendResponse response;
    if (call.Read(&response)) {
      then(response);
      call.Cancel();
    }
    return call.Finish();
  };
  const auto nothing = [](const v1::AttendResponse&) {};
  EXPECT_EQ(ReasonOf(open("lab", 3008, nothing)), "OVER_QUOTA");
  EXPECT_EQ(ReasonOf(open("eye", 0, nothing)), "ROLE");
  open("lab", 0, [this](const v1::AttendResponse& response) {
    EXPECT_LE(response.admitted().epoch_tokens(), 3000);
    EXPECT_GT(response.admitted().epoch_tokens(), 1500);
    EXPECT_THAT(JobsSeenBy("lab"), ::testing::ElementsAre("lab/stream"));
    EXPECT_THAT(JobsSeenBy("eye"), ::testing::ElementsAre("lab/stream"));
    OpenJob beside(ChannelAs("lab"), "a", 1501);
    EXPECT_EQ(ReasonOf(beside.Finish()), "QUOTA");
  }).IgnoreError();
}

// Both tokens are valid for a while, then the new token alone.
TEST_F(Tokens, AreReplacedUnderLoad) {
  Write(Line("lab", "submit", TokenOf("lab")));
  Start();
  std::ofstream(folder_ / "mine") << TokenOf("lab") << "\n";
  client::Access access{.tls = true, .ca = ca_, .token_file = folder_ / "mine"};
  JobsUnderLoad jobs(started_->address(), 3, [&access] { return access; });
  const auto await = [&](const std::string& token, bool served) {
    const Clock::time_point limit = Clock::now() + std::chrono::seconds(30);
    while (Clock::now() < limit) {
      const auto channel = client::Connect(started_->address(), With(token));
      if (client::RequestCluster(channel).ok() == served) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  };
  const std::string next = TokenOf("lab-anew");
  Write(Line("lab", "submit", TokenOf("lab")) + Line("lab", "submit", next));
  EXPECT_TRUE(await(next, true));
  std::ofstream(folder_ / "mine.new") << next << "\n";
  std::filesystem::rename(folder_ / "mine.new", folder_ / "mine");
  EXPECT_TRUE(jobs.GoOn());
  OpenJob runs(ChannelAs("lab-anew"), "runs", 1000);
  ASSERT_TRUE(runs.admitted());
  Write(Line("lab", "submit", next));
  EXPECT_TRUE(await(TokenOf("lab"), false)) << "the old token is still taken";
  EXPECT_TRUE(jobs.GoOn());
  EXPECT_THAT(JobsSeenBy("lab-anew"), ::testing::Contains("lab/runs"));
  Write("");
  EXPECT_TRUE(await(next, false)) << "an empty file admits no caller";
  const JobEnd last = jobs.Stop();
  EXPECT_TRUE(last.verdict == Verdict::kRight || last.reason == "AUTH_TOKEN") << last.status;
}

TEST_F(Tokens, AppearNowhere) {
  Write(Line("lab", "submit", TokenOf("lab")) + Line("eye", "observe", TokenOf("eye")));
  Start();
  RunJob(started_->address(), SmallJob(1), {.access = As("lab")});
  RunJob(started_->address(), SmallJob(1), {.access = As("somebody")});
  client::RequestCluster(ChannelAs("somebody")).IgnoreError();
  Write("{\"token\": \"" + TokenOf("lab") + "\n");
  const Clock::time_point limit = Clock::now() + std::chrono::seconds(30);
  while (started_->Logs().find("the tokens stay as they were") == std::string::npos &&
         Clock::now() < limit) {
    client::RequestCluster(ChannelAs("lab")).IgnoreError();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const std::string logs = started_->Logs();
  EXPECT_THAT(logs, HasSubstr("line 1 is not a JSON object"));
  EXPECT_THAT(logs, Not(HasSubstr(kMark)));
  const auto metrics = HttpGet({.port = started_->http_port(),
                                .path = "/metrics",
                                .ca = ca_,
                                .authorization = absl::StrCat("Bearer ", TokenOf("eye"))});
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->status, 200);
  EXPECT_THAT(metrics->body, HasSubstr("AUTH_TOKEN"));
  EXPECT_THAT(metrics->body, Not(HasSubstr(kMark)));
  for (const pid_t process : started_->Processes()) {
    for (const char* file : {"cmdline", "environ"}) {
      std::ifstream text(absl::StrCat("/proc/", process, "/", file), std::ios::binary);
      EXPECT_THAT(std::string(std::istreambuf_iterator<char>(text), {}), Not(HasSubstr(kMark)));
    }
  }
}

}  // namespace
}  // namespace hilbert_ring::testing
