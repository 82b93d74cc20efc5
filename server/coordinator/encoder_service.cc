#include "server/coordinator/encoder_service.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/return_if_error.h"
#include "server/job/encode_work.h"
#include "server/models/encode_spec.h"
#include "server/schedule/job_sizes.h"
#include "wire/codec.h"
#include "wire/status.h"

namespace hilbert_ring::server {

grpc::Status EncoderService::PlanEncode(grpc::ServerContext* context,
                                        const v1::PlanEncodeRequest* request,
                                        v1::PlanResponse* response) {
  return calls_.Answer("PlanEncode", *context, kAnyRole, "plan", [&](const Caller& caller) {
    return MakePlanFor(caller, *context, *request, *response);
  });
}

absl::Status EncoderService::MakePlanFor(const Caller& caller, grpc::ServerContext& context,
                                         const v1::PlanEncodeRequest& request,
                                         v1::PlanResponse& response) {
  const v1::EncodeSpec& spec = request.spec();
  ASSIGN_OR_RETURN(const EncoderFolder model,
                   services_.memory.models.Open(spec.model(), spec.digest()));
  ASSIGN_OR_RETURN(const EncodeJob job,
                   DecodeEncodeSpec(spec, model.config(), LimitsOf(services_.limits.settings)));
  const Members live = services_.cluster.membership.Live();
  Members having;
  std::ranges::copy_if(live, std::back_inserter(having), [&](const auto& member) {
    return member->models.Has(spec.model(), model.digest());
  });
  const int workers = request.workers() != 0 ? request.workers() : static_cast<int>(having.size());
  if (workers == 0) {
    return wire::ErrorOf(
        wire::reason::kNoWorkers,
        "no registered worker has the model: the request must give the number of workers");
  }
  ASSIGN_OR_RETURN(const PlanGate::Turn turn, calls_.EnterPlan(caller, context));
  const auto gone = [&context] { return context.IsCancelled(); };
  const auto plan = CountedOn(having, EncodePlanner(job, MostThreads(live), gone))(workers);
  if (absl::IsCancelled(plan.status())) return plan.status();
  if (!plan.ok()) return wire::WithReason(plan.status(), wire::reason::kInvalidSpec);
  const PlanTime time = PredictTime(*plan, services_.cluster.rate.MeasuredOf(having));
  response = wire::EncodePlan(*plan, {.seconds = time.seconds, .basis = time.basis});
  for (std::string& note : NotesOn(job)) response.add_notes(std::move(note));
  return absl::OkStatus();
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
                                        const v1::ListModelsRequest* /*request*/,
                                        v1::ListModelsResponse* response) {
  return calls_.Answer("ListModels", *context, kAnyRole, "see models", [&](const Caller&) {
    const ModelCatalog::Listing listing = services_.memory.models.List();
    for (const ModelCatalog::Entry& entry : listing.entries) {
      v1::Model model = Describe(entry.name, entry.model);
      model.clear_config();  // many configs exceed a message; GetModel returns one
      *response->add_models() = std::move(model);
    }
    return absl::OkStatus();
  });
}

grpc::Status EncoderService::GetModel(grpc::ServerContext* context,
                                      const v1::GetModelRequest* request, v1::Model* response) {
  return calls_.Answer("GetModel", *context, kAnyRole, "see models", [&](const Caller&) {
    const auto folder = services_.memory.models.Open(request->name());
    const bool described =
        folder.ok() || wire::HasReason(folder.status(), wire::reason::kModelUnusable);
    if (described) *response = Describe(request->name(), folder);
    return described ? absl::OkStatus() : folder.status();
  });
}

}  // namespace hilbert_ring::server
