// Random parameters of samplers and watermarks, for tests that compare two ways to run them.
#pragma once

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/techniques/watermark/technique.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace troupe::testing {

inline std::shared_ptr<const watermarks::options> random_watermark(std::mt19937& random) {
  using watermarks::context_kind;
  watermarks::options mark;
  mark.what = random() % 2 ? watermarks::kind::green : watermarks::kind::gumbel;
  mark.context = static_cast<context_kind>(random() % (mark.what == watermarks::kind::green ? 4 : 3));
  mark.width = 1 + static_cast<int>(random() % 4);
  mark.key = {random(), random()};
  return std::make_shared<watermarks::options>(mark);
}

/// Sets some of the samplers that run on the host alone; ids below `vocab` are used.
inline void add_random_samplers(sampling_params& p, int vocab, std::mt19937& random) {
  const auto some = [&](int n) { return random() % static_cast<unsigned>(n) == 0; };
  const auto uniform = [&](float low, float high) { return std::uniform_real_distribution<float>(low, high)(random); };
  const auto any_id = [&] { return static_cast<token_id>(random() % static_cast<unsigned>(vocab)); };
  if (some(4))
    p.dynatemp_range = uniform(0, 1), p.dynatemp_exponent = uniform(0.5f, 2);
  if (some(4))
    p.smoothing_factor = uniform(0.05f, 1), p.smoothing_curve = uniform(1, 3);
  if (some(4))
    p.top_n_sigma = uniform(0.5f, 3);
  if (some(4))
    p.typical_p = uniform(0.3f, 1);
  if (some(4))
    p.epsilon_cutoff = uniform(0, 0.01f);
  if (some(4))
    p.eta_cutoff = uniform(0, 0.01f);
  if (some(4))
    p.top_a = uniform(0, 0.5f);
  if (some(3))
    p.xtc_probability = uniform(0, 1), p.xtc_threshold = uniform(0, 0.3f);
  if (some(4))
    p.repetition_penalty = uniform(1, 1.5f), p.repetition_penalty_range = 1 + static_cast<int>(random() % 20);
  if (some(4))
    p.no_repeat_ngram_size = 2 + static_cast<int>(random() % 3);
  if (some(3)) {
    p.dry_multiplier = uniform(0.1f, 2);
    p.dry_range = static_cast<int>(random() % 30);
    p.dry_breakers = token_set({any_id()}, "dry_sequence_breakers", 1);
  }
  if (some(4))
    p.sequence_biases = sequence_bias_list({{{any_id(), any_id()}, 5.f}, {{any_id()}, -INFINITY}});
  if (some(5)) {
    std::vector<token_id> ids;
    for (int id = 0; id < vocab; ++id)
      if (id % 3 != 0)
        ids.push_back(id);
    p.allowed_token_ids = token_set(std::move(ids), "allowed_token_ids", static_cast<std::size_t>(vocab));
  }
  if (some(3)) {
    std::vector<std::string> names(sampler_names.begin(), sampler_names.end());
    std::shuffle(names.begin(), names.end(), random);
    names.resize(random() % names.size());
    p.samplers = sampler_order(names);
  }
  if (some(4))
    p.mirostat = 2, p.mirostat_tau = uniform(1, 6), p.mirostat_eta = uniform(0.01f, 0.5f);
  if (some(2))
    p.techniques.set(watermarks::marked_by(random_watermark(random)));
  if (const auto* mark = watermarks::mark_of(p.techniques.find(watermark_technique));
      mark && mark->what == watermarks::kind::gumbel)
    p.mirostat = 0;
}

} // namespace troupe::testing
