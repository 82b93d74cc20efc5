// Workers that say what cannot be: the job ends on the others, the client gets nothing twice, and
// the coordinator goes on.
#include <chrono>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/job/job_rig.h"
#include "wire/checksum.h"
#include "wire/status.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

void Final(v1::RunResponse& response, int64_t rows) { response.mutable_final()->set_rows(rows); }

void Output(v1::RunResponse& response, int64_t first_slot, int64_t rows) {
  v1::OutputChunk& chunk = *response.mutable_output();
  chunk.set_tensor(v1::TENSOR_OUT);
  chunk.set_first_token(first_slot);
  chunk.set_rows(rows);
  chunk.set_payload(std::string(std::max<int64_t>(rows, 0) * 2 * 16 * sizeof(float), '\0'));
  chunk.set_crc32c(wire::Crc32c(chunk.payload()));
  response.set_first_slot(first_slot);
}

struct Word {
  const char* name;
  Moment moment;
  bool local;
  std::function<void(v1::RunResponse&)> fill;
  const char* message;  // of the error
};

class RogueWorker : public ::testing::TestWithParam<Word> {};

TEST_P(RogueWorker, IsLeftOutAndRests) {
  JobRig rig({.local = GetParam().local});
  rig.worker(0).AtEach(GetParam().moment, Write(GetParam().fill));
  auto client = rig.Send();
  const absl::Status status = rig.Await(*client);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(client->RepeatedRows(), 0);
  EXPECT_EQ(rig.worker(0).runs(), 1);
  EXPECT_EQ(rig.failures(0), 1);
  EXPECT_EQ(rig.failures(1), 0);
  EXPECT_TRUE(rig.backs_off(0));
  EXPECT_THAT(rig.Describe(0).reason(), HasSubstr(GetParam().message));
  EXPECT_THAT(rig.lines(),
              Contains(AllOf(HasSubstr("is tried again"), HasSubstr(rig.worker(0).address()),
                             HasSubstr(GetParam().message))));
}

// As often as it may be tried, where nobody else is there.
TEST_P(RogueWorker, EndsItsJobWhereItIsTheOnlyOne) {
  JobRig rig({.workers = 1, .local = GetParam().local});
  rig.worker(0).At(GetParam().moment, Write(GetParam().fill));
  auto client = rig.Send();
  const absl::Status status = rig.Await(*client);
  if (status.ok()) return;  // what another worker has, it has itself here
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_EQ(client->RepeatedRows(), 0);
  EXPECT_EQ(rig.failures(0), 1);
  auto next = rig.Send();
  ASSERT_TRUE(rig.Await(*next).ok());
  EXPECT_EQ(next->WrongRows(), 0);
}

constexpr char kNotShared[] = "speaks of rows that it does not share";
constexpr char kOtherTokens[] = "sent rows of OUT under other tokens than theirs";
constexpr char kNotItsSlots[] = "sent outputs of slots that it does not have, or twice";

// Of 64 rows worker 0 has the first 32.
INSTANTIATE_TEST_SUITE_P(
    Words, RogueWorker,
    ::testing::Values(
        Word{"FinalBeyondItsShard", Moment::kRowsDone, true, [](auto& r) { Final(r, 33); },
             kNotShared},
        Word{"FinalFarBeyond", Moment::kRowsDone, true,
             [](auto& r) { Final(r, std::numeric_limits<int64_t>::max()); }, kNotShared},
        Word{"FinalOfNothingShared", Moment::kRowsDone, false, [](auto& r) { Final(r, 1); },
             kNotShared},
        Word{"FinalBeforeItIsReady", Moment::kOpened, true, [](auto& r) { Final(r, 1); },
             kNotShared},
        Word{"ReadyTwice", Moment::kRowsDone, true,
             [](auto& r) { r.mutable_ready()->set_shares_memory(false); },
             "says twice that it is ready"},
        Word{"OutputTwice", Moment::kAllOut, false, [](auto& r) { Output(r, 0, 1); }, kNotItsSlots},
        Word{"OutputOverSomeThatWent", Moment::kHalfOut, false, [](auto& r) { Output(r, 15, 2); },
             kNotItsSlots},
        Word{"OutputBeyondTheJob", Moment::kRowsDone, false, [](auto& r) { Output(r, 64, 1); },
             kNotItsSlots},
        Word{"OutputAcrossTheEnd", Moment::kRowsDone, false, [](auto& r) { Output(r, 63, 2); },
             kNotItsSlots},
        Word{"OutputBeforeTheFirst", Moment::kRowsDone, false, [](auto& r) { Output(r, -1, 1); },
             kNotItsSlots},
        Word{"OutputOfNoRows", Moment::kRowsDone, false, [](auto& r) { Output(r, 0, 0); },
             kNotItsSlots},
        Word{"OutputOfLessThanNone", Moment::kRowsDone, false, [](auto& r) { Output(r, 8, -1); },
             kNotItsSlots},
        Word{"OutputWithoutBytes", Moment::kRowsDone, false,
             [](auto& r) {
               Output(r, 0, 32);
               r.mutable_output()->clear_payload();
               r.mutable_output()->set_crc32c(0);
             },
             "sent 0 bytes and 0 tokens of 32 rows of OUT, each of 128 bytes"},
        Word{"OutputOfOtherRows", Moment::kRowsDone, false,
             [](auto& r) {
               Output(r, 0, 32);
               r.mutable_output()->set_rows(1);
             },
             "sent 4096 bytes and 0 tokens of 1 rows of OUT, each of 128 bytes"},
        Word{"OutputOfOtherTokens", Moment::kRowsDone, false,
             [](auto& r) {
               Output(r, 0, 2);
               for (int i = 0; i < 3; ++i) r.mutable_output()->add_tokens(i);
             },
             "sent 256 bytes and 3 tokens of 2 rows of OUT, each of 128 bytes"},
        Word{"OutputOfAnotherChecksum", Moment::kRowsDone, false,
             [](auto& r) {
               Output(r, 0, 32);
               r.mutable_output()->set_crc32c(5);
             },
             "sent rows of OUT with crc32c 00000005, theirs is "},
        Word{"OutputWithoutAChecksum", Moment::kRowsDone, false,
             [](auto& r) {
               Output(r, 0, 32);
               r.mutable_output()->clear_crc32c();
             },
             "sent rows of OUT with crc32c 00000000, theirs is "},
        Word{"NothingAtAll", Moment::kRowsDone, true, [](auto&) {}, "sent an empty message"}),
    [](const auto& info) { return std::string(info.param.name); });

// Rows that lie elsewhere than they should.
INSTANTIATE_TEST_SUITE_P(Places, RogueWorker,
                         ::testing::Values(Word{"OutputOfOthersSlots", Moment::kRowsDone, false,
                                                [](auto& r) { Output(r, 40, 1); }, kNotItsSlots},
                                           Word{"OutputAcrossItsShard", Moment::kRowsDone, false,
                                                [](auto& r) { Output(r, 31, 2); }, kNotItsSlots},
                                           Word{"OutputUnderOthersTokens", Moment::kRowsDone, false,
                                                [](auto& r) {
                                                  Output(r, 8, 1);
                                                  r.mutable_output()->set_first_token(0);
                                                },
                                                kOtherTokens},
                                           Word{"OutputUnderListedTokens", Moment::kRowsDone, false,
                                                [](auto& r) {
                                                  Output(r, 8, 1);
                                                  r.mutable_output()->add_tokens(9);
                                                },
                                                kOtherTokens}),
                         [](const auto& info) { return std::string(info.param.name); });

// It says that it has computed, and its figures, as one that is right.
FakeWorker::Action EndWell() {
  return [](const FakeWorker::Here& here) {
    v1::RunResponse response;
    response.mutable_computed()->set_seconds(1e-3);
    here.stream.Write(response);
    response.mutable_figures()->set_tokens(32);
    here.stream.Write(response);
    return grpc::Status::OK;
  };
}

// Whoever puts outputs together for a client would not know.
TEST(RogueWorkers, OneThatEndsWellWithoutItsOutputsIsNamed) {
  for (const bool local : {true, false}) {
    for (const Moment moment : {Moment::kRowsDone, Moment::kHalfOut}) {
      JobRig rig({.local = local, .settings = {.check_rows = 64}});
      rig.worker(1).AtEach(moment, EndWell());
      auto client = rig.Send();
      const absl::Status status = rig.Await(*client);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(client->report().retries(), 1);
      EXPECT_EQ(client->WrongRows(), 0);
      EXPECT_EQ(client->RepeatedRows(), 0);
      const char* const missing = moment == Moment::kRowsDone
                                      ? ": 32 of 64 are missing, from slot 32 on"
                                      : ": 16 of 64 are missing, from slot 48 on";
      EXPECT_THAT(rig.Describe(1).reason(),
                  HasSubstr(rig.worker(1).address() + " ended without all rows of OUT that it has" +
                            missing));
      EXPECT_EQ(rig.worker(1).runs(), 1);
      EXPECT_EQ(rig.failures(1), 1);
      EXPECT_EQ(rig.failures(0), 0);
    }
  }
}

// Old news is no news.
TEST(RogueWorkers, RowsThatAreFinalAgainAreSentOnce) {
  JobRig rig;
  rig.worker(0).At(Moment::kHalfOut, Write([](auto& r) { Final(r, 16); }));
  rig.worker(0).At(Moment::kAllOut, Write([](auto& r) { Final(r, 3); }));
  rig.worker(1).At(Moment::kAllOut, Write([](auto& r) { Final(r, -1); }));
  auto client = rig.Send();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(client->RepeatedRows(), 0);
}

TEST(RogueWorkers, ProgressThatCannotBeIsPassedOver) {
  JobRig rig;
  rig.worker(0).At(Moment::kRowsDone, Write([](auto& r) {
                     r.mutable_progress()->set_fraction(7);
                     r.mutable_progress()->set_waiting_step(-1);
                   }));
  auto client = rig.Send();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->WrongRows(), 0);
}

TEST(RogueWorkers, AStreamThatEndsWellWithoutFiguresIsALostWorker) {
  JobRig rig;
  rig.worker(0).At(Moment::kComputed, [](const auto&) { return grpc::Status::OK; });
  auto client = rig.Send();
  ASSERT_TRUE(rig.Await(*client).ok());
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->report().workers_size(), 1);
  EXPECT_EQ(rig.failures(0), 1);
  EXPECT_TRUE(rig.backs_off(0));
  EXPECT_THAT(rig.lines(), Contains(HasSubstr("its stream ended without figures")));
}

// Nothing tells why its stream takes no rows.
TEST(RogueWorkers, OneThatEndsWellBeforeItHasItsRowsIsALostWorker) {
  JobRig rig({.local = false});
  rig.worker(0).At(Moment::kReady, EndWell());
  auto client = rig.Send(JobRig::Spec(kManyTokens));
  // The coordinator waits so long for why a stream takes no rows.
  ASSERT_TRUE(rig.time().RunUntil([&] { return client->ended(); }, std::chrono::seconds(5)));
  const absl::Status status = rig.Await(*client);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(client->report().retries(), 1);
  EXPECT_EQ(client->report().workers_size(), 1);
  EXPECT_EQ(client->WrongRows(), 0);
  EXPECT_EQ(rig.failures(0), 1);
  // Rows may still go where nobody takes them.
  EXPECT_THAT(rig.Describe(0).reason(), AnyOf(HasSubstr("its stream ended while rows were sent"),
                                              HasSubstr("ended without all rows")));
}

// What its peers would be blamed for.
TEST(RogueWorkers, OneWhoseEndOfARingIsNoneIsLeftOutAtOnce) {
  for (const std::string& blob : {std::string(), std::string(4'100'000, 'a')}) {
    JobRig rig({.workers = 3});
    rig.worker(1).set_each_blob(blob);
    auto client = rig.Send(PlainSpec({.segment = 64}));
    const absl::Status status = rig.Await(*client);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(client->report().retries(), 1);
    EXPECT_EQ(client->report().workers_size(), 2);
    EXPECT_EQ(rig.failures(0), 0);
    EXPECT_EQ(rig.failures(1), 1);
    EXPECT_EQ(rig.failures(2), 0);
    EXPECT_TRUE(rig.backs_off(1));
    EXPECT_THAT(rig.Describe(1).reason(), HasSubstr(" bytes that are no end of the ring"));
  }
}

// A shard's memory is kept for its pages, and says nothing of the job that had it.
TEST(RogueWorkers, RowsThatNobodyWroteAreNotThoseOfTheJobBefore) {
  for (const bool follows : {false, true}) {
    for (const int workers : {1, 2}) {
      JobRig rig({.workers = workers});
      auto first = rig.Send(JobRig::Spec(), {.input_follows = follows});
      ASSERT_TRUE(rig.Await(*first).ok());
      EXPECT_EQ(first->WrongRows(), 0);
      for (int i = 0; i < workers; ++i) {
        rig.worker(i).At(Moment::kRowsDone, [workers](const FakeWorker::Here& here) {
          v1::RunResponse response;
          Final(response, 64 / workers);
          here.stream.Write(response);
          return EndWell()(here);
        });
      }
      auto next = rig.Send(JobRig::Spec(), {.job_id = "next", .input_follows = follows});
      ASSERT_TRUE(rig.Await(*next).ok());
      EXPECT_EQ(next->rows(), 64);
      EXPECT_EQ(next->WrongRows(), 64) << "they are zero, of " << workers << " workers";
    }
  }
}

// Neither the tolerance of the check nor the client's rows know of the plan.
TEST(RogueWorkers, WrongNumbersAreFoundAndNamed) {
  JobRig rig({.settings = {.check_rows = 64}});
  for (int job = 0; job < 2; ++job) {
    rig.worker(1).set_error(job == 0 ? 0 : 1e-3F);
    auto client = rig.Send();
    const absl::Status status = rig.Await(*client);
    if (job == 0) {
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(client->report().rows_checked(), 64);
      continue;
    }
    EXPECT_EQ(wire::ReasonOf(status), "ROW_MISMATCH") << status;
    EXPECT_TRUE(absl::IsDataLoss(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr(rig.worker(1).address() + " sent it"));
    EXPECT_EQ(rig.Phases()[rig.Phases().size() - 2], "checking");
    EXPECT_EQ(rig.worker(1).runs(), 2) << "it is the client's to try again";
  }
  // The second job with wrong rows: it gets no more.
  auto third = rig.Send(JobRig::Spec(), {.job_id = "third"});
  EXPECT_EQ(wire::ReasonOf(rig.Await(*third)), "ROW_MISMATCH");
  EXPECT_EQ(rig.Describe(1).state(), v1::ClusterWorker::STATE_DISTRUSTED);
  auto fourth = rig.Send(JobRig::Spec(), {.job_id = "fourth"});
  ASSERT_TRUE(rig.Await(*fourth).ok());
  EXPECT_EQ(fourth->report().workers_size(), 1);
}

}  // namespace
}  // namespace hilbert_ring::testing
