#include "runtime/engine/loading/option_checks.hpp"

#include "runtime/engine/loading/layer_layout.hpp"
#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/engine/loading/replica_roles.hpp"
#include "runtime/techniques/repertoire.hpp"

namespace troupe {

namespace {

void check_at_least(std::int64_t value, std::int64_t least, const char* name) {
  if (value < least)
    throw failure(
      errc::bad_request,
      std::string("`") + name + "` must be at least " + std::to_string(least) + ", not " + std::to_string(value), name);
}

} // namespace

void check_options(const engine_options& options) {
  check_at_least(options.max_context, 0, "max_context");
  check_at_least(options.replicas, 1, "replicas");
  check_layers(options);
  replica_roles(options);
  devices_of_replicas(options);
  check_at_least(options.role_idle.count(), 0, "role_idle");
  check_at_least(options.max_sequences, 1, "max_sequences");
  if (options.max_sequences > 65536)
    refuse_field("max_sequences", "must be at most 65536, not " + std::to_string(options.max_sequences));
  check_at_least(options.max_queue, 1, "max_queue");
  check_at_least(options.step_tokens, 0, "step_tokens");
  check_at_least(options.itl_target.count(), 0, "itl_target");
  check_at_least(options.cached_sequences, 0, "cached_sequences");
  check_at_least(options.request_timeout.count(), 0, "request_timeout");
  check_at_least(options.ttft_timeout.count(), 0, "ttft_timeout");
  check_at_least(options.max_wait.count(), 0, "max_wait");
  for (const auto* each : repertoire())
    for (const auto& option : each->options) {
      if (option.check)
        for (const auto& text : texts_of(options.techniques, option.name))
          option.check(text);
      if (option.what == technique_option::kind::integer)
        check_at_least(
          static_cast<std::int64_t>(number_of(options.techniques, option.name, static_cast<float>(option.least))),
          static_cast<std::int64_t>(option.least), std::string(option.name).c_str());
    }
  check_at_least(options.compute.threads, 0, "threads");
  parse_sparsity(options.compute.sparsity);
}

} // namespace troupe
