#include "tests/faults/fault_rounds.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/faults/fault_moment.h"
#include "tests/faults/tally.h"

namespace hilbert_ring::testing {

void RunFaultRounds(const FaultRounds& rounds, const ClusterOptions& options,
                    const std::function<Fault(FaultRig&, std::mt19937_64&)>& draw) {
  const uint64_t seed = FaultSeed(rounds.name, rounds.seed);
  const int count = RoundsOf(rounds.few);
  FaultRig rig(options);
  Tally tally(rounds.name);
  for (int round = 0; round < count && !::testing::Test::HasFatalFailure(); ++round) {
    std::mt19937_64 random(seed + round);
    ASSERT_EQ(rig.BeginRound(random), "") << "seed " << seed + round;
    const Moment drawn = DrawMoment(random);
    const Fault fault = draw(rig, random);
    const std::string trace = absl::StrCat("seed ", seed + round, ", ", PhaseName(drawn.phase), " ",
                                           drawn.part, ", ", fault.what, ": ", Describe(rig.job()));
    SCOPED_TRACE(trace);
    FaultMoment moment(drawn, rig.job().seconds, fault.begin);
    const JobEnd end = RunJob(rig.cluster().address(), rig.job(),
                              {.deadline = absl::Seconds(60), .progress = moment.progress()});
    tally.Count(end, moment.Settle(), trace);
    EXPECT_NE(end.verdict, Verdict::kBad)
        << end.what << "; logs are in " << (end.what.empty() ? "" : rig.cluster().KeepLogs());
    EXPECT_LT(end.seconds, rounds.times * rig.job().seconds + rounds.more);
    if (fault.end) fault.end();
    EXPECT_EQ(rig.EndRound(random), "");
  }
  tally.Print();
  EXPECT_EQ(tally.bad(), 0);
}

}  // namespace hilbert_ring::testing
