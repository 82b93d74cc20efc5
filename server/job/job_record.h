// A job after its admission, and the parts of one of its executions.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/base/return_if_error.h"
#include "engine/plan/plan.h"
#include "server/job/job_client.h"
#include "server/job/job_course.h"
#include "server/job/job_rows.h"
#include "server/job/job_services.h"
#include "server/job/job_work.h"
#include "server/rows/held_rows.h"
#include "server/rows/job_input.h"
#include "server/rows/row_check.h"
#include "server/shard/output_rows.h"

namespace hilbert_ring::server {

struct JobRecord {
  // References outlive it.
  JobRecord(const v1::Open& opened, JobWork& job_work, JobRows& job_rows, OrderCache& orders,
            JobCourse& how_far)
      : open(opened),
        work(job_work),
        rows(job_rows),
        spec(work.spec()),
        input(work.shape(), orders),
        delivered(spec.tokens),
        course(how_far),
        check(work.MakeCheck()) {}

  const v1::Open& open;  // without the spec
  int64_t number = 0;    // unique, unlike the ids of clients
  JobWork& work;
  JobRows& rows;
  const JobSpec& spec;
  std::string traceparent;  // the caller's, or empty
  JobInput input;
  HeldRows held;
  Delivered delivered;
  JobCourse& course;
  const std::shared_ptr<RowCheck> check;               // null: no rows to check
  std::atomic<int64_t> rows_sent = 0;                  // outputs
  int64_t bytes_received = 0;                          // payload
  std::atomic<int64_t> bytes_sent = 0;                 // payload
  std::optional<JobMemory::Reservation> order_memory;  // coordinates and order, or pooled results
  bool begun = false;                                  // an execution came before
  std::atomic<bool> admitted = false;                  // the client got Admitted

  absl::Status Accept(const ClientMessage& message) {
    const v1::Chunk& chunk = message.request.chunk();
    const Checksum checksum = message.checked ? Checksum::kChecked : Checksum::kToCheck;
    RETURN_IF_ERROR(input.Accept(chunk, message.payload, checksum));
    if (ComesAhead(chunk.tensor()) && work.has_coordinates() && input.order_known() &&
        order_memory) {
      order_memory->Shrink(Coordinates::OrderBytes(spec) + BiasCoordinates::MemoryBytes(spec));
    }
    return absl::OkStatus();
  }

  void NoteSent(int64_t rows_of_output) {
    const int64_t sent = rows_sent += rows_of_output;
    course.Advance(JobPhase::kSending,
                   static_cast<double>(sent) / static_cast<double>(spec.tokens));
  }
};

struct RunParts {  // all outlive the run
  const Member& member(int rank) const { return *grant.members[rank]; }
  const CoordinatorSettings& settings() const { return services.limits.settings; }
  const TimeSource& time() const { return services.observers.time; }

  const JobServices& services;
  JobClient& client;
  JobRecord& job;
  const Plan& plan;
  const Grant& grant;                                         // its members are the plan's ranks
  const Rings::Lease* ring = nullptr;                         // null: no exchange
  JobClient::SendMode send_mode = JobClient::SendMode::kNow;  // for outputs
};

}  // namespace hilbert_ring::server
