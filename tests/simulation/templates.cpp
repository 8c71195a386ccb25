#include "tests/simulation/templates.hpp"
#include "runtime/techniques/adapters/technique.hpp"
#include "runtime/techniques/guides/technique.hpp"

#include "runtime/guide/guide_source.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/guidance/technique.hpp"
#include "runtime/techniques/steering/technique.hpp"
#include "runtime/techniques/stochastic_beams/technique.hpp"
#include "runtime/techniques/tree_search/technique.hpp"
#include "tests/simulation/dice.hpp"
#include "tests/simulation/hash_model.hpp"
#include "tests/simulation/variants.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace troupe::simulation {

namespace {

/// One of few texts, cut somewhere, and perhaps something of its own behind that.
std::vector<token_id> prompt_of(dice& d) {
  dice family(static_cast<std::uint64_t>(d.pick(1, 4)));
  const auto shared = d.one_in(3) ? 16 * d.pick(1, 4) : d.pick(1, 68);
  std::vector<token_id> prompt;
  for (int i = 0; i < shared; ++i)
    prompt.push_back(family.pick(1, vocabulary - 1));
  for (auto own = d.one_in(2) ? d.pick(1, 8) : 0; own > 0; --own)
    prompt.push_back(d.pick(1, vocabulary - 1));
  return prompt;
}

std::shared_ptr<const guides::guide_source> guide_of(dice& d) {
  guides::guide_source g;
  switch (d.pick(0, 3)) {
    case 0:
      g.what = guides::guide_source::kind::choice;
      g.choices = {"yes", "no", "perhaps"};
      break;
    case 1:
      g.what = guides::guide_source::kind::regex;
      g.text = "[a-f]{2,6}-[0-9]+";
      break;
    case 2:
      g.what = guides::guide_source::kind::json_schema;
      g.text = R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x","y"]}},)"
               R"("required":["a","b"],"additionalProperties":false})";
      g.compact = d.one_in(2);
      break;
    default: g.what = guides::guide_source::kind::json_object;
  }
  return std::make_shared<const guides::guide_source>(std::move(g));
}

void add_beams(dice& d, generation& g) {
  auto& s = g.sampling;
  const auto width = d.pick(2, 3);
  s.n = d.pick(1, width);
  s.max_tokens = std::min(s.max_tokens, 12);
  if (d.one_in(3)) {
    s.temperature = 1;
    s.techniques.set(stochastic_beams(width));
  } else {
    s.temperature = 0;
    s.techniques.set(beams({.width = width, .stopping = static_cast<early_stopping>(d.pick(0, 2))}));
  }
  g.prompt.resize(std::min<std::size_t>(g.prompt.size(), 32));
}

void add_search(dice& d, generation& g) {
  auto& s = g.sampling;
  const auto parallel = d.pick(2, 3);
  s.n = d.pick(1, 2);
  s.max_tokens = std::min(s.max_tokens, 8);
  s.techniques.set(searched_by({.simulations = d.pick(3, 9),
                                .branching = d.pick(2, 4),
                                .parallel = parallel,
                                .value = d.one_in(2) ? search_value::model : search_value::likelihood}));
  g.prompt.resize(std::min<std::size_t>(g.prompt.size(), 32));
}

} // namespace

bool wants_judge(const generation& g) { return g.sampling.judged(); }

bool wants_variants(const generation& g) {
  return names_adapter(g) || g.sampling.techniques.find(steering_technique) != nullptr;
}

static generation make_request(int number) {
  dice d(static_cast<std::uint64_t>(number) * 1'000'003 + 17);
  generation g;
  g.prompt = prompt_of(d);
  auto& s = g.sampling;
  s.max_tokens = d.one_in(8) ? 1 : d.pick(1, 24);
  s.temperature = d.one_in(2) ? 0.0f : 0.9f;
  s.seed = d.next() % 1000;
  s.logprobs = d.one_in(3) ? -1 : d.pick(0, 2);
  s.ignore_eos = d.one_in(2);
  if (d.one_in(6))
    s.stop = {"ab", "q"};
  if (d.one_in(8))
    s.repetition_penalty = 1.3f;
  if (d.one_in(8))
    s.min_tokens = d.pick(1, std::max(s.max_tokens - 1, 1));
  if (d.one_in(8))
    g.cache_salt = d.one_in(2) ? "a" : "b";
  if (d.one_in(6))
    for (int i = d.pick(1, 20); i > 0; --i)
      g.prediction.push_back(d.pick(1, vocabulary - 1));
  switch (d.pick(0, 15)) {
    case 0:
    case 1: s.n = d.pick(2, 3); break;
    case 2:
      s.n = d.pick(1, 2);
      s.best_of = s.n + 1;
      s.temperature = 0.9f;
      break;
    case 3: add_beams(d, g); break;
    case 10: add_search(d, g); break;
    case 4: s.prompt_logprobs = d.pick(0, 1); break;
    case 5:
    case 6: g.sampling.techniques.set(guides::following(guide_of(d))); break;
    case 7:
      s.max_tokens = 1;
      s = {};
      g.prediction = {};
      g.embed = d.one_in(2) ? pooling::mean : pooling::last;
      break;
    case 8:
      s.techniques.set(guided_by(1.5f));
      g.prompt.resize(std::min<std::size_t>(g.prompt.size(), 40));
      if (d.one_in(2))
        g.negative_prompt = {g.prompt.begin(), g.prompt.begin() + std::min<std::ptrdiff_t>(20, std::ssize(g.prompt))};
      break;
    case 9:
      s.max_tokens = 0;
      s.prompt_logprobs = 0;
      s.min_tokens = 0;
      break;
    default: break;
  }
  if (d.one_in(5))
    s.techniques.set(adapted_by(adapter_names[d.next() % adapter_names.size()]));
  if (d.one_in(8))
    s.techniques.set(steered_by(
      {{.name = steering_names[d.next() % steering_names.size()], .strength = static_cast<float>(d.pick(1, 2))}}));
  return g;
}

generation request_of(int number) {
  static std::map<int, generation> all;
  auto found = all.find(number);
  if (found == all.end())
    found = all.emplace(number, make_request(number)).first;
  return found->second;
}

std::string describe(const generation& g) {
  const auto& s = g.sampling;
  std::string text = std::to_string(g.prompt.size()) + " tokens, max " + std::to_string(s.max_tokens);
  if (s.width() > 1)
    text += ", width " + std::to_string(s.width());
  if (s.grouped())
    text += ", a group";
  if (guides::source_of(g))
    text += ", a guide";
  if (s.prompt_logprobs >= 0)
    text += ", prompt_logprobs";
  if (g.embed != pooling::none)
    text += ", an embedding";
  if (!g.cache_salt.empty())
    text += ", salt " + g.cache_salt;
  if (names_adapter(g))
    text += ", an adapter";
  if (g.sampling.techniques.find(steering_technique))
    text += ", steering";
  return text;
}

} // namespace troupe::simulation
