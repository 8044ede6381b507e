// SPDX-License-Identifier: Apache-2.0
#include "http/tinker_routes.h"

#include <array>

namespace plexrl::http {
namespace {

// SDKs before 0.25 send training data as JSON, of which they make parts of about 5 MB unless told
// otherwise (client/config).
constexpr std::size_t kJsonData = std::size_t{4} << 20;
constexpr std::size_t kDataMessage = std::size_t{64} << 20;

constexpr std::array kRoutes{
    Route{"GET", "/api/v1/healthz", kNoBody, begin_tinker_health, {}},
    Route{"GET", "/api/v1/get_server_capabilities", kNoBody, begin_tinker_capabilities, {}},
    Route{"POST", "/api/v1/client/config", kTextBody, begin_tinker_config, {}},
    Route{"POST", "/api/v1/client/dynamic_config", kTextBody, begin_tinker_dynamic_config, {}},
    Route{"POST", "/api/v1/create_session", kTextBody, begin_tinker_session, {}},
    Route{"POST", "/api/v1/session_heartbeat", kTextBody, begin_tinker_heartbeat, {}},
    Route{"POST", "/api/v1/telemetry", kTextBody, begin_tinker_telemetry, {}},
    Route{"POST", "/api/v1/create_model", kTextBody, begin_tinker_create_model, {}},
    Route{"POST", "/api/v1/get_info", kTextBody, begin_tinker_get_info, {}},
    Route{"POST", "/api/v1/unload_model", kTextBody, begin_tinker_unload, {}},
    Route{"POST",
          "/api/v1/forward_backward",
          kJsonData,
          begin_tinker_forward_backward,
          {},
          kDataMessage},
    Route{"POST", "/api/v1/forward", kJsonData, begin_tinker_forward, {}},
    Route{"POST", "/api/v1/optim_step", kTextBody, begin_tinker_optim_step, {}},
    Route{"POST", "/api/v1/save_weights", kTextBody, begin_tinker_save_weights, {}},
    Route{"POST", "/api/v1/save_weights_for_sampler", kTextBody, begin_tinker_save_for_sampler, {}},
    Route{"POST", "/api/v1/load_weights", kTextBody, begin_tinker_load_weights, {}},
    Route{"POST", "/api/v1/weights_info", kTextBody, begin_tinker_weights_info, {}},
    Route{"GET", "/api/v1/training_runs", kNoBody, begin_tinker_runs, {}},
    Route{"GET", "/api/v1/training_runs/*", kNoBody, begin_tinker_run, {}},
    Route{"DELETE", "/api/v1/training_runs/*", kNoBody, begin_tinker_delete, {}},
    Route{"POST", "/api/v1/training_runs/*", kNoBody, begin_tinker_not_here, {}},
    Route{"PUT", "/api/v1/training_runs/*", kNoBody, begin_tinker_not_here, {}},
    Route{"GET", "/api/v1/checkpoints", kNoBody, begin_tinker_checkpoints, {}},
    Route{"POST", "/api/v1/create_sampling_session", kTextBody, begin_tinker_sampling_session, {}},
    Route{"GET", "/api/v1/samplers/*", kNoBody, begin_tinker_sampler, {}},
    Route{"POST", "/api/v1/asample", kTextBody, begin_tinker_asample, {}},
    Route{"POST", "/api/v1/retrieve_future", kTextBody, begin_tinker_retrieve, {}, 0, true},
};

}  // namespace

std::span<const Route> tinker_routes() { return kRoutes; }

}  // namespace plexrl::http
