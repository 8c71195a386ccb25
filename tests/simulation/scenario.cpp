#include "tests/simulation/scenario.hpp"

#include "runtime/model/pooled_head.hpp"
#include "runtime/techniques/guides/technique.hpp"
#include "runtime/techniques/speculation/speculator.hpp"
#include "runtime/techniques/speculation/technique.hpp"
#include "tests/simulation/dice.hpp"
#include "tests/simulation/hash_guesses.hpp"
#include "tests/simulation/hash_model.hpp"
#include "tests/simulation/templates.hpp"
#include "tests/simulation/variants.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace troupe::simulation {

namespace {

client_plan client_of(dice& d, int number, bool trouble, bool drafts, bool judge) {
  client_plan c;
  do
    c.request = d.pick(0, templates - 1);
  while (!judge && wants_judge(request_of(c.request)));
  c.at = d.one_in(2) ? d.pick(0, 20) : d.pick(0, 600);
  c.is_actor = d.one_in(2);
  c.priority = d.one_in(3) ? d.pick(-2, 2) : 0;
  c.name = d.one_in(2) ? "" : "client " + std::to_string(number % 3);
  constexpr std::array kinds{speculation::automatic, speculation::off, speculation::ngram, speculation::lookahead,
                             speculation::draft};
  c.speculate = kinds[static_cast<std::size_t>(d.pick(0, drafts ? 4 : 3))];
  if (!trouble)
    return c;
  if (d.one_in(4))
    for (int i = d.pick(1, 3), at = c.at; i > 0; --i) {
      c.deeds.push_back({client_deed::kind::pause, at += d.pick(1, 200)});
      c.deeds.push_back({client_deed::kind::go_on, at += d.pick(1, 300)});
    }
  if (d.one_in(7))
    c.deeds.push_back({d.one_in(2) ? client_deed::kind::cancel : client_deed::kind::leave, c.at + d.pick(0, 400)});
  for (auto& deed : c.deeds)
    if (deed.what == client_deed::kind::cancel && deed.at % 3 == 0)
      deed.what = client_deed::kind::finish;
  std::ranges::stable_sort(c.deeds, {}, &client_deed::at);
  if (d.one_in(10))
    c.timeout_ms = d.pick(1, 60);
  if (!c.is_actor && d.one_in(20))
    c.throws_at = d.pick(1, 6);
  return c;
}

/// The requests that follow a guide.
const std::vector<int>& guided_requests() {
  static const auto all = [] {
    std::vector<int> found;
    for (int i = 0; i < templates; ++i)
      if (guides::source_of(request_of(i)))
        found.push_back(i);
    return found;
  }();
  return all;
}

/// All ask for the same guide at about the same time, and some leave before it is compiled.
void crowd_at_a_guide(dice& d, scenario& s, bool trouble) {
  const auto& all = guided_requests();
  const auto asked = all[d.next() % all.size()];
  for (auto& c : s.clients) {
    c.request = asked;
    c.at = d.pick(0, 8);
    c.deeds.clear();
    if (trouble && d.one_in(2))
      c.deeds = {{d.one_in(2) ? client_deed::kind::cancel : client_deed::kind::leave, c.at + d.pick(0, 25)}};
  }
  s.how = picking::starve;
  s.starved = "guide_worker";
}

/// Executors fail again and again while many requests are there, and a replica may be lost with its device: whoever waits
/// because it is suspected has no start of a replica to wait for.
void suspect_several(dice& d, scenario& s) {
  s.replicas = d.pick(2, 3);
  s.roles = s.strangers = s.few_images = false;
  s.role_idle_ms = s.lost_every = 0;
  s.limits.max_queue = 1000;
  s.limits.max_wait_ms = 0;
  s.fragile = d.pick(3, 12);
  s.lost_at_last = true;
  s.device_may_be_lost = false;
  s.death_every = s.refusal_every = s.failing_load = 0;
  while (s.clients.size() < 5)
    s.clients.push_back(client_of(d, static_cast<int>(s.clients.size()), false, s.drafts, s.judge));
  for (auto& c : s.clients) {
    c.at = d.pick(0, 40);
    if (!c.deeds.empty() && d.one_in(2))
      c.deeds.clear();
  }
}

/// Sequences with states go while a step is planned, and others come that find states of the same prompts kept.
void change_states_hands(dice& d, scenario& s, bool trouble) {
  s.prefix_cache = true;
  s.snapshots = d.pick(4, 8);
  s.blocks = d.pick(40, 90);
  s.limits.max_sequences = most_sequences;
  s.limits.step_tokens = d.pick(24, 64);
  s.how = picking::starve;
  s.starved = "kv_block_manager";
  while (s.clients.size() < 10)
    s.clients.push_back(client_of(d, static_cast<int>(s.clients.size()), trouble, s.drafts, s.judge));
  for (auto& c : s.clients) {
    c.at = d.pick(0, 400);
    if (trouble && c.deeds.empty() && d.one_in(2))
      c.deeds.push_back({client_deed::kind::cancel, c.at + d.pick(20, 200)});
  }
}

} // namespace

scenario scenario_of(std::uint64_t seed) {
  dice d(seed);
  scenario s;
  s.seed = seed;
  const bool trouble = !d.one_in(4);
  s.replicas = d.one_in(3) ? d.pick(2, 3) : 1;
  s.roles = s.replicas > 1 && d.one_in(2);
  s.asynchronous = d.one_in(3);
  s.late_masks = d.one_in(2);
  s.recurrent = d.one_in(4);
  s.stages = !s.recurrent && !s.roles && d.one_in(6) ? 2 : 1;
  s.prefix_cache = !d.one_in(5);
  s.disk = s.prefix_cache && !s.recurrent && s.stages == 1 && d.one_in(5);
  s.blocks = d.one_in(3) ? d.pick(9, 16) : d.one_in(2) ? d.pick(18, 30) : d.pick(30, 90);
  s.host_blocks = d.one_in(3) ? d.pick(1, 12) : 0;
  s.snapshots = s.recurrent ? d.pick(1, 8) : 0;
  s.limits = {.step_tokens = d.pick(8, 64),
              .max_sequences = d.pick(most_sequences, 10),
              .max_queue = d.one_in(4) ? d.pick(1, 6) : 1000,
              .steps_ahead = d.pick(1, 2),
              .stages = s.stages,
              .recurrent = s.recurrent};
  if (s.recurrent)
    s.limits.most_guesses = 8;
  if (s.limits.max_queue == 1)
    s.limits.max_wait_ms = 20;
  s.drafts = d.one_in(3);
  s.judge = d.one_in(3) && !s.asynchronous; // a late sampler asks no judge: it is on no actor's turn
  s.forced_guesses = d.one_in(2) ? d.pick(1, 6) : 0;
  s.limits.trees = d.one_in(2);
  for (int i = d.pick(1, 10); i > 0; --i)
    s.clients.push_back(client_of(d, i, trouble, s.drafts, s.judge));
  s.how = static_cast<picking>(d.pick(0, 3));
  constexpr std::array kinds{"scheduler", "kv_block_manager", "sampler",       "executor",
                             "request",   "engine",           "guide_compiler"};
  s.starved = kinds[static_cast<std::size_t>(d.pick(0, 6))];
  if (trouble && !d.one_in(3)) {
    constexpr std::array every{15, 60, 250, 800};
    s.death_every = every[static_cast<std::size_t>(d.pick(0, 3))];
    s.most_deaths = d.pick(1, 5);
    s.engine_may_die = d.one_in(8);
    s.device_may_be_lost = d.one_in(8);
  }
  if (trouble && d.one_in(8))
    s.refusal_every = d.pick(20, 300);
  s.observed = d.one_in(3);
  if (s.roles && !d.one_in(3))
    s.role_idle_ms = d.pick(1, 8);
  s.ahead = s.drafts && d.one_in(2);
  if (s.disk && d.one_in(2)) {
    s.disk_bytes = d.one_in(2) ? static_cast<std::size_t>(d.pick(2, 30)) * 4096 : s.disk_bytes;
    s.disk_trouble_every = trouble && d.one_in(2) ? d.pick(20, 200) : 0;
    s.disk_refused_every = trouble && d.one_in(2) ? d.pick(1, 12) : 0;
  }
  if (s.roles) {
    s.lost_every = trouble && d.one_in(2) ? d.pick(2, 12) : 0;
    s.strangers = d.one_in(8);
    s.few_images = d.one_in(16);
  }
  if (s.host_blocks > 0 && d.one_in(2)) {
    s.host_blocks = d.pick(1, 4);
    s.blocks = d.pick(9, 14);
  }
  if (d.one_in(16))
    crowd_at_a_guide(d, s, trouble);
  s.first_version = d.pick(0, adapter_versions - 1);
  s.swap_every = d.one_in(2) ? d.pick(20, 200) : 0;
  if (trouble) {
    s.failing_load = d.one_in(60);
    s.failing_judge = s.judge && d.one_in(4) ? d.pick(1, 3) : 0;
    s.fragile = d.one_in(10) ? d.pick(2, 10) : 0;
    if (s.refusal_every > 0 && d.one_in(3)) {
      s.refused = d.one_in(2) ? "engine" : s.starved;
      s.refusal_every = d.pick(2, 12);
    }
  }
  if (trouble && d.one_in(16))
    suspect_several(d, s);
  else if (s.recurrent && d.one_in(4))
    change_states_hands(d, s, trouble);
  return s;
}

scenario calm_scenario(int request, bool recurrent, int stages, int version) {
  scenario s;
  s.calm = true;
  s.recurrent = recurrent;
  s.stages = stages;
  s.prefix_cache = false;
  s.blocks = 200;
  s.limits = {.step_tokens = 64, .max_sequences = 8, .steps_ahead = 1, .stages = stages, .recurrent = recurrent};
  s.how = picking::oldest;
  s.judge = wants_judge(request_of(request));
  s.first_version = version;
  s.clients = {{.request = request, .speculate = speculation::off}};
  return s;
}

std::string scenario::describe() const {
  std::string text = "seed " + std::to_string(seed) + ": " + std::to_string(replicas) + " replicas" +
    (roles ? " with roles" : "") + (role_idle_ms > 0 ? " that yield" : "") + ", " + std::to_string(stages) +
    " stages, " + std::to_string(blocks) + " blocks, " + std::to_string(host_blocks) + " in the host, " +
    std::to_string(limits.step_tokens) + " rows, " + std::to_string(limits.max_sequences) + " sequences, " +
    std::to_string(clients.size()) + " clients";
  for (const auto& [is, what] : {std::pair(asynchronous, ", asynchronous"),
                                 {late_masks, ", late masks"},
                                 {recurrent, ", recurrent"},
                                 {disk, ", a disk"},
                                 {disk_trouble_every > 0, " that is damaged"},
                                 {disk_refused_every > 0, " that refuses"},
                                 {lost_every > 0, ", lost transfers"},
                                 {strangers, ", strangers"},
                                 {few_images, ", few images"},
                                 {swap_every > 0, ", adapters that change"},
                                 {failing_load > 0, ", a load that fails"},
                                 {failing_judge > 0, ", a load of the judge that fails"},
                                 {drafts, ", a draft model"},
                                 {ahead, " that guesses ahead"},
                                 {limits.trees, ", trees"},
                                 {judge, ", a judge"},
                                 {!prefix_cache, ", no prefix cache"},
                                 {observed, ", observed"},
                                 {death_every > 0, ", deaths"},
                                 {fragile > 0, ", executors that fail again and again"},
                                 {lost_at_last, ", until a device is lost"},
                                 {refusal_every > 0, ", refusals"}})
    text += is ? what : "";
  if (!refused.empty())
    text += " of memory for a " + refused;
  return text;
}

std::shared_ptr<loaded_model> model_of(const scenario& s, const std::shared_ptr<outside_work>& work, int* alive,
                                       const std::string& folder) {
  auto model = std::make_shared<loaded_model>();
  auto& info = model->info;
  info.id = "hashes";
  info.vocab_size = vocabulary;
  info.max_context = info.own_context = longest_context;
  info.tokenizer = hash_tokenizer();
  info.defaults.stops = {end_token};
  info.hidden = hidden_width;
  model->prefix_cache = s.prefix_cache;
  model->strict_roles = true;
  model->role_idle = std::chrono::milliseconds(s.role_idle_ms);
  model->guesses.make = [drafts = s.drafts, ahead = s.ahead, forced = s.forced_guesses](step_cost_fn cost) {
    return std::make_shared<speculator>(speculation_settings{.draft_model = drafts, .forced = forced, .ahead = ahead},
                                        std::move(cost));
  };
  if (s.drafts) {
    info.techniques.set(speculation_technique, std::make_shared<const guessing_models>(guessing_models{"hashes"}));
    model->guesses.make_model = [](const model_replica&) { return std::make_unique<hash_guesses>(); };
  }
  model->constraints = constraints()->open(info);
  if (std::ranges::any_of(s.clients, [](const auto& c) { return wants_variants(request_of(c.request)); }))
    add_variants(*model, s.first_version);
  if (s.disk)
    model->kv_disk = std::make_shared<const kv_disk>(
      kv_disk{kv_store::open({folder, s.disk_bytes}, numerics_id(), hash_block_bytes(), [](const log_line&) {})});
  for (int i = 0; i < s.stages; ++i) {
    auto weights = std::make_shared<model_weights>();
    weights->config.layers = 1;
    weights->config.kv_heads = 1;
    weights->config.head_dim = static_cast<int>(hash_block_bytes()) / kernels::block_tokens / 4 / 2; // K and V, f32
    model->stages.push_back({std::move(weights)});
  }
  for (int r = 0; r < s.replicas; ++r) {
    replica_plan plan;
    for (int i = 0; i < s.stages; ++i)
      plan.stages.push_back(make_hash_device({.asynchronous = s.asynchronous,
                                              .late_masks = s.late_masks,
                                              .last = i + 1 == s.stages,
                                              .recurrent = s.recurrent,
                                              .runners_alive = alive},
                                             work));
    plan.blocks = s.blocks;
    plan.host_blocks = s.host_blocks;
    plan.snapshots = s.snapshots;
    if (s.host_blocks > 0)
      plan.swap = {hash_block_bytes(), 1e12, 1e12};
    plan.limits = s.limits;
    if (s.roles) {
      plan.role = r == 0 ? replica_role::prefill : replica_role::decode;
      plan.exchange = {s.few_images ? std::size_t(8) << 20 : hash_block_bytes(), {1, s.strangers ? r : 2u}, 0.001};
    }
    model->replicas.push_back(std::move(plan));
  }
  model->capabilities = model->replicas.front().last().capabilities();
  return model;
}

std::shared_ptr<loaded_model> judge_of(const std::shared_ptr<outside_work>& work, int* alive) {
  scenario s;
  s.blocks = 80;
  s.limits = {.step_tokens = 32, .max_sequences = 4, .steps_ahead = 1};
  auto model = model_of(s, work, alive, {});
  std::vector<float> weight;
  for (std::size_t i = 0; i < hidden_width; ++i)
    weight.push_back(i % 3 == 0 ? 1.0f : -0.5f);
  model->info.id = "judge";
  model->info.ranker = std::make_shared<const pooled_head>(
    pooling::last, std::vector{pooled_layer{.outputs = 1, .inputs = hidden_width, .weight = std::move(weight)}});
  return model;
}

generation generation_of(const client_plan& c) {
  auto g = request_of(c.request);
  g.priority = c.priority;
  g.client = c.name;
  (c.timeout_ms % 4 == 1 ? g.ttft_timeout : g.timeout) = std::chrono::milliseconds(c.timeout_ms);
  if (!g.sampling.grouped() && g.embed == pooling::none)
    g.sampling.techniques.set(speculated_by(c.speculate));
  return g;
}

} // namespace troupe::simulation
