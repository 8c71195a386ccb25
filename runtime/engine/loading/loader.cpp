#include "runtime/engine/loading/loader.hpp"

#include "runtime/engine/loading/kept_prefixes.hpp"
#include "runtime/engine/loading/load_plan.hpp"
#include "runtime/engine/loading/opened_model.hpp"
#include "runtime/engine/loading/option_checks.hpp"
#include "runtime/engine/loading/weight_loading.hpp"

#include <utility>

namespace troupe {

namespace {

/// What the sink of a load is told: lines for the log, and how far the weights are.
class load_progress {
public:
  explicit load_progress(const progress_sink& to) : to_(to) {}

  // Said once: the line of `status_` is that of the bar.
  void log(log_line line) const {
    auto said = status_;
    said.line = std::move(line.text);
    said.level = line.level;
    if (to_)
      to_(said);
  }

  void begin(const std::string& name) { status_.line = "loading " + name; }

  void show(std::size_t done, std::size_t total) {
    status_.done_bytes = done;
    status_.total_bytes = total;
    if (to_)
      to_(status_);
  }

private:
  const progress_sink& to_;
  load_status status_;
};

/// All weights, into `model`.
void load_all(const engine_options& options, const engine_internals& internals, opened_model& from,
              load_progress& report, loaded_model& model) {
  const auto show = [&](std::size_t done, std::size_t total) { report.show(done, total); };
  const auto log = [&](log_line line) { report.log(std::move(line)); };
  report.begin(from.info.id);
  for (const auto& stage : from.stages) {
    if (stage.config.span)
      report.begin(from.info.id + ", layers " + std::to_string(stage.config.span->first) + "-" +
                   std::to_string(stage.config.span->end - 1));
    model.stages.push_back({load_weights(from.source, stage.compute, stage.precision, *stage.backend, show, log,
                                         stage.config.span, stage.weight_budget),
                            stage.precision});
  }
  for (const auto& copy : from.copies) {
    report.begin(from.info.id + " on " + copy.compute.device);
    model.copies.push_back(
      {load_weights(from.source, copy.compute, copy.precision, *copy.backend, show, log), copy.precision});
  }
  auto& backend = *from.last().backend;
  if (from.guesses)
    model.guesses = from.guesses->load(
      options, internals.techniques, model,
      {.backend = backend, .begin = [&](const std::string& name) { report.begin(name); }, .show = show, .log = log});
  for (auto& each : from.seconds) {
    report.begin(each.name());
    const auto& second = model.seconds.emplace_back(each.load(options, backend, show, log));
    model.info.techniques.set(*second.of,
                              std::make_shared<const second_facts>(second_facts{second.sizes.context, second.vocab}));
  }
}

/// What the actors get, without the weights.
loaded_model wire(const engine_options& options, const engine_internals& internals, const opened_model& opened,
                  load_plan plan) {
  loaded_model model;
  model.info = opened.info;
  model.files = opened.source.files;
  model.info.own_context = opened.source.config.max_context;
  model.info.max_context = plan.max_context;
  model.info.weight_bytes = plan.weight_bytes;
  model.info.kv_cache_bytes = plan.kv_cache_bytes;
  model.info.judge = model.info.tokenizer ? judge_of(options.techniques) : nullptr;
  model.capabilities = opened.capabilities;
  model.prefix_cache = options.prefix_cache;
  model.strict_roles = internals.strict_roles;
  model.role_idle = options.role_idle;
  model.request_timeout = options.request_timeout;
  model.ttft_timeout = options.ttft_timeout;
  if (const auto* hook = constraints())
    model.constraints = hook->open(model.info);
  model.replicas = std::move(plan.replicas);
  model.promised = std::make_shared<const std::vector<memory_entry>>(std::move(plan.promised));
  return model;
}

} // namespace

std::shared_ptr<const loaded_model> load_model(const engine_options& options, const progress_sink& progress,
                                               const engine_internals& internals) {
  check_options(options);
  load_progress report(progress);
  report.log("reading " + options.model);
  auto opened = open_for(options, [&](log_line line) { report.log(std::move(line)); });
  auto plan = plan_load(options, opened);
  for (auto& line : plan.lines)
    report.log(std::move(line));
  auto model = std::make_shared<loaded_model>(wire(options, internals, opened, std::move(plan)));
  if (model->replicas.front().finds_prefixes())
    model->kv_disk = open_kv_disk(options, opened, model->replicas.front().limits.rope_borders,
                                  [&](log_line line) { report.log(std::move(line)); });
  model->lengths = std::make_shared<kept_lengths>(options.length_model,
                                                  [&](log_line line) { report.log(std::move(line)); });
  load_all(options, internals, opened, report, *model);
  return model;
}

} // namespace troupe
