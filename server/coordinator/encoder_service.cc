#include "server/coordinator/encoder_service.h"

#include <string>
#include <utility>
#include <vector>

#include "server/coordinator/refusals.h"
#include "server/job/encode_work.h"
#include "server/models/encode_spec.h"
#include "server/schedule/job_sizes.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {

EncoderService::EncoderService(const JobServices& services, Callers& callers, JobCalls& calls,
                               PlanGate& plans)
    : services_(services), callers_(callers), calls_(calls), plans_(plans) {}

grpc::Status EncoderService::PlanEncode(grpc::ServerContext* context,
                                        const v1::PlanEncodeRequest* request,
                                        v1::PlanResponse* response) {
  return services_.observers.metrics.requests().Count(
      "PlanEncode", [&] { return MakePlanFor(*context, *request, *response); });
}

grpc::Status EncoderService::MakePlanFor(grpc::ServerContext& context,
                                         const v1::PlanEncodeRequest& request,
                                         v1::PlanResponse& response) {
  const auto caller = CallerOf(callers_, context, kAnyRole, "plan");
  if (!caller.ok()) return Refuse(services_.observers.metrics, caller.status());
  const v1::EncodeSpec& spec = request.spec();
  const auto model = services_.memory.models.Open(spec.model(), spec.digest());
  if (!model.ok()) return wire::ToGrpc(model.status());
  const auto job = DecodeEncodeSpec(spec, model->config(), LimitsOf(services_.limits.settings));
  if (!job.ok()) return wire::ToGrpc(job.status());
  std::vector<std::string> addresses;
  const Members live = services_.cluster.membership.Live();
  Members having;
  for (const auto& member : live) {
    if (!member->models.Has(spec.model(), model->digest())) continue;
    addresses.push_back(member->address);
    having.push_back(member);
  }
  const int workers =
      request.workers() != 0 ? request.workers() : static_cast<int>(addresses.size());
  if (workers == 0) {
    return wire::ToGrpc(wire::ErrorOf(
        wire::reason::kNoWorkers,
        "no registered worker has the model: the request must give the number of workers"));
  }
  const auto gone = [&context] { return context.IsCancelled(); };
  const PlanGate::Turn turn = plans_.Enter(caller->turns, gone);
  if (turn == nullptr) return RefusePlan(services_.observers.metrics, plans_, context);
  const Planner planner = CountedOn(having, EncodePlanner(*job, MostThreads(live), gone));
  const auto plan = planner(workers);
  if (absl::IsCancelled(plan.status())) return wire::ToGrpc(plan.status());
  if (!plan.ok()) return wire::ToGrpc(wire::WithReason(plan.status(), wire::reason::kInvalidSpec));
  const PlanTime time = PredictTime(*plan, services_.cluster.rate.MeasuredOf(addresses));
  response = wire::EncodePlan(*plan, {.seconds = time.seconds, .basis = time.basis});
  for (std::string& note : NotesOn(*job)) response.add_notes(std::move(note));
  return grpc::Status::OK;
}

v1::Model EncoderService::Describe(const std::string& name,
                                   const absl::StatusOr<EncoderFolder>& folder) const {
  v1::Model model;
  model.set_name(name);
  if (!folder.ok()) {
    model.set_error(std::string(folder.status().message()));
    return model;
  }
  const EncoderConfig& config = folder->config();
  model.set_digest(folder->digest());
  model.set_config(folder->config_text());
  model.set_weight_bytes(WeightBytes(config, DataType::kFloat32));
  model.set_tile_dim(config.tile_dim());
  model.set_embed_dim(config.embed_dim);
  model.set_layers(config.layers);
  model.set_heads(config.heads);
  model.set_class_token(config.class_token);
  model.set_pools(config.norm_eps > 0);
  if (config.position) {
    model.set_positions(true);
    model.set_grid_pixels(static_cast<double>(config.position->tile_size) *
                          static_cast<double>(config.position->grid));
  }
  for (const auto& member : services_.cluster.membership.Live()) {
    if (member->models.Has(name, folder->digest())) model.set_workers(model.workers() + 1);
  }
  return model;
}

grpc::Status EncoderService::ListModels(grpc::ServerContext* context,
                                        const v1::ListModelsRequest* request,
                                        v1::ListModelsResponse* response) {
  return services_.observers.metrics.requests().Count("ListModels", [&] {
    const auto caller = CallerOf(callers_, *context, kAnyRole, "see models");
    if (!caller.ok()) return Refuse(services_.observers.metrics, caller.status());
    const ModelCatalog::Listing listing = services_.memory.models.List();
    for (const ModelCatalog::Entry& entry : listing.entries) {
      v1::Model model = Describe(entry.name, entry.model);
      model.clear_config();  // many configs exceed a message; GetModel returns one
      *response->add_models() = std::move(model);
    }
    return grpc::Status(grpc::Status::OK);
  });
}

grpc::Status EncoderService::GetModel(grpc::ServerContext* context,
                                      const v1::GetModelRequest* request, v1::Model* response) {
  return services_.observers.metrics.requests().Count("GetModel", [&] {
    const auto caller = CallerOf(callers_, *context, kAnyRole, "see models");
    if (!caller.ok()) return Refuse(services_.observers.metrics, caller.status());
    const auto folder = services_.memory.models.Open(request->name());
    if (!folder.ok() && !wire::HasReason(folder.status(), wire::reason::kModelUnusable)) {
      return wire::ToGrpc(folder.status());
    }
    *response = Describe(request->name(), folder);
    return grpc::Status(grpc::Status::OK);
  });
}

}  // namespace hilbert_ring::server
