#include "runtime/sampling/search_options.hpp"

#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/number_text.hpp"

#include <sstream>
#include <string>

namespace troupe {

namespace {

void refuse_search(const char* field, const std::string& why) {
  throw failure(errc::bad_request, "`" + std::string(field) + "` " + why, field);
}

template <class T>
void expect_in_search(const char* field, T value, T least, T most) {
  if (value >= least && value <= most)
    return;
  classic<std::ostringstream> why;
  why << "must have `" << field << "` between " << least << " and " << most << ", not " << value;
  refuse_search("search", why.str());
}

} // namespace

void check_search(const sampling_params& p) {
  if (!p.searched())
    return;
  using namespace sampling_fields;
  const auto& s = p.search;
  expect_in_search("simulations", s.simulations, 1, most_simulations);
  expect_in_search("branching", s.branching, 1, most_branching);
  expect_in_search("parallel", s.parallel, 1, most_sequences);
  expect_in_search("exploration", s.exploration, 0.f, 100.f);
  expect_in_search("length_penalty", s.length_penalty, -10.f, 10.f);
  if (p.judged() && s.length_penalty != 0)
    refuse_search("search", "cannot have a `length_penalty` when a reward model gives the `value`");
  if (static_cast<long>(s.simulations) * p.max_tokens > most_search_tokens)
    refuse_search("search",
                  "may generate at most " + std::to_string(most_search_tokens) + " tokens: lower `simulations` (" +
                    std::to_string(s.simulations) + ") or `max_tokens` (" + std::to_string(p.max_tokens) + ")");
  if (static_cast<long>(s.simulations) * s.branching > most_search_nodes)
    refuse_search("search",
                  "may tell at most " + std::to_string(most_search_nodes) + " tokens apart: lower `simulations` (" +
                    std::to_string(s.simulations) + ") or `branching` (" + std::to_string(s.branching) + ")");
  constexpr auto why = "cannot be used with `search`";
  if (p.num_beams > 0)
    refuse_search("num_beams", why);
  if (p.best_of > 0)
    refuse_search("best_of", "cannot be used with `search`, whose best `n` answers are returned");
  if (p.paired())
    refuse_search("guidance_scale", "must be 1 with `search`");
  if (p.mirostat != 0)
    refuse_search("mirostat", why);
  if (p.watermark)
    refuse_search("watermark", why);
  if (p.n > s.simulations)
    refuse_search("n",
                  "must be at most the `simulations` of `search` (" + std::to_string(s.simulations) + "), not " +
                    std::to_string(p.n));
}

} // namespace troupe
