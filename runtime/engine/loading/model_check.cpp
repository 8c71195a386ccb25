#include "runtime/engine/loading/model_check.hpp"

#include "runtime/engine/loading/load_plan.hpp"
#include "runtime/engine/loading/option_checks.hpp"
#include "runtime/model/precision.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/kv_blocks.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <set>

namespace troupe {

namespace {

/// Whatever files make a loader throw is said of the model.
template <class F>
std::string why_failed(const F& f) {
  try {
    f();
    return {};
  } catch (const std::bad_alloc&) {
    return "there is not enough memory to read its files";
  } catch (const std::exception& e) {
    return e.what();
  }
}

void describe(const model_source& source, std::size_t parameters, int context, const std::string& weights,
              model_check& result) {
  result.family = source.config.family;
  result.parameters = parameters;
  result.context = context;
  result.weights = weights;
}

/// Describes a model that does not load by its configuration and the headers of its weights.
void describe_unloadable(const std::string& model, model_check& result) {
  const auto source = open_model(model);
  std::size_t parameters = 0;
  for (const auto& name : source.tensors->tensors()) {
    std::size_t elements = 1;
    for (const auto size : source.tensors->find(name)->shape)
      elements *= size;
    parameters += elements;
  }
  describe(source, parameters, source.config.max_context, weights_kind(*source.tensors, kernels::quantization::none),
           result);
}

/// Memory apart: how steps are planned depends on what is available, and what is needed at least does not.
void estimate(const engine_options& options, const opened_model& opened, model_check& result) {
  auto rows = options.step_tokens;
  memory_estimate need;
  std::set<std::string> memories; // of the devices, the host's once
  for (const auto& stage : opened.stages) {
    const auto& device = *stage.device;
    const auto own = device.capabilities().own_memory ? device.description() : "";
    if (memories.insert(own).second)
      result.available += device.available_memory();
    if (options.step_tokens == 0) {
      const auto most = device.most_step_tokens(options.max_sequences);
      rows = rows > 0 ? std::min(rows, most) : most;
    }
  }
  for (const auto& stage : opened.stages)
    need += stage.memory(*opened.source.tensors,
                         {.rows = rows,
                          .sequences = options.max_sequences,
                          .context = result.context,
                          .looks_inside = opened.capabilities.looks_inside});
  result.weight_bytes = need.weights;
  result.step_bytes = need.steps();
  result.kv_token_bytes = need.kv_block / kernels::block_tokens;
  result.sequence_bytes = blocks_for(static_cast<std::size_t>(result.context)) * need.kv_block;
}

} // namespace

model_check check_model(const engine_options& options) {
  model_check result;
  result.why_not = why_failed([&] {
    check_options(options);
    auto opened = open_for(options, [](const std::string&) {});
    describe(opened.source, opened.info.parameters, opened.context(options), opened.info.weights, result);
    check_tensors(*opened.source.tensors, opened.source.config);
    estimate(options, opened, result);
    result.no_room = why_failed([&] { result.fitting_context = plan_load(options, opened).max_context; });
  });
  if (!result.why_not.empty() && result.family.empty())
    why_failed([&] { describe_unloadable(options.model, result); });
  return result;
}

} // namespace troupe
