#include "runtime/techniques/beams/technique.hpp"

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/error.hpp"
#include "runtime/techniques/stochastic_beams/technique.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

using namespace troupe;

namespace {

/// The field that is to blame, or empty if nothing is. The sentence names it.
std::string blamed(const std::function<void()>& f) {
  try {
    f();
    return {};
  } catch (const failure& caught) {
    CHECK(caught.what_failed().code == errc::bad_request);
    CHECK(caught.what_failed().message.starts_with("`" + caught.what_failed().param + "` "));
    return caught.what_failed().param;
  }
}

using change = std::function<void(sampling_params&)>;

std::string blamed_with(const sampling_params& start, const change& edit) {
  auto p = start;
  edit(p);
  return blamed([&] { p.validate(100); });
}

sampling_params searching(const beam_options& how) {
  sampling_params p;
  p.n = 2;
  p.techniques.set(beams(how));
  return p;
}

sampling_params stochastic(int width) {
  sampling_params p;
  p.n = 2;
  p.techniques.set(stochastic_beams(width));
  return p;
}

bool nothing_given(std::string_view) { return false; }

} // namespace

TEST_CASE("The number of beams is what was asked for, else best_of, else n") {
  const auto settled = [](int width, int best_of, int n, std::optional<bool> use, std::string_view own = {}) {
    sampling_params p;
    p.best_of = best_of;
    p.n = n;
    const auto how = settled_beams({.how = {.width = width}, .search = use}, p, nothing_given, own);
    CHECK((how.width == 0 || p.best_of == 0));
    return how.width;
  };
  CHECK(settled(0, 0, 3, true) == 3);
  CHECK(settled(0, 5, 3, true) == 5);
  CHECK(settled(4, 0, 3, true) == 4);
  CHECK(settled(4, 4, 3, true) == 4);
  CHECK(settled(1, 0, 1, true) == 1);
  CHECK(settled(4, 0, 3, std::nullopt) == 4);
  CHECK(settled(1, 0, 1, std::nullopt) == 0); // transformers' default, no search
  CHECK(settled(0, 5, 3, std::nullopt) == 0);
  CHECK(settled(1, 5, 3, false) == 0);
  CHECK(settled(0, 0, 3, std::nullopt, "stochastic_beams") == 3);
}

TEST_CASE("Stochastic beams read the options of beams, which search no further then") {
  sampling_params p;
  p.n = 2;
  p.techniques.set(beams({.width = 5}));
  p.techniques.set(stochastic_beams(0));
  p.settle(nothing_given);
  CHECK(p.width() == 5);
  CHECK(beams_of(p) == nullptr);
  CHECK(p.group()->field == "stochastic_beams");
}

TEST_CASE("Beams are refused where use_beam_search is false or best_of is another number") {
  const auto blamed_for = [](const asked_beams& asked, int best_of, std::string_view own = {}) {
    sampling_params p;
    p.best_of = best_of;
    return blamed([&] { settled_beams(asked, p, nothing_given, own); });
  };
  CHECK(blamed_for({.how = {.width = 4}, .search = false}, 0) == "num_beams");
  CHECK(blamed_for({.how = {.width = 4}, .search = true}, 3) == "best_of");
  CHECK(blamed_for({.search = false}, 0, "stochastic_beams") == "stochastic_beams");
}

TEST_CASE("Options of beams are refused without beams, those of best_of without more candidates than n") {
  const auto blamed_for = [](const beam_options& how) {
    sampling_params p;
    return blamed([&] { settled_beams({.how = how}, p, nothing_given, {}); });
  };
  CHECK(blamed_for({.groups = 2}) == "num_beam_groups");
  CHECK(blamed_for({.diversity_penalty = 1}) == "diversity_penalty");
  CHECK(blamed_for({.length_penalty = 0}) == "length_penalty");
  CHECK(blamed_for({.stopping = early_stopping::never}) == "early_stopping");
  const sampling_params plain;
  CHECK(blamed_with(plain, [](auto& p) { p.techniques.set(stochastic_beams(0)); }) == "num_beams");
  CHECK(blamed_with(plain, [](auto& p) { p.best_of = 2, p.n = 3; }) == "best_of");
  CHECK(blamed_with(plain, [](auto& p) { p.rank = best_of_rank::mean; }) == "best_of_rank");
  CHECK(blamed_with(plain, [](auto& p) { p.best_of = p.n = 2, p.rank = best_of_rank::mean; }) == "best_of_rank");
  CHECK(blamed_with(plain, [](auto& p) { p.best_of = 4, p.n = 2, p.rank = best_of_rank::mean; }).empty());
  CHECK(blamed_with(plain, [](auto& p) { p.best_of = p.n = 2; }).empty());
}

TEST_CASE("Without beams, do_sample as false means greedy choices") {
  sampling_params p;
  CHECK(settled_beams({.drawn = false}, p, nothing_given, {}).width == 0);
  CHECK(p.greedy());
}

TEST_CASE("What has no meaning beside beams is refused by its name") {
  const auto beams = searching({.width = 4});
  const auto other = [](beam_options how) {
    how.width = 4;
    return blamed([&] { searching(how).validate(100); });
  };
  CHECK(blamed_with(beams, [](auto&) {}).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.top_k = -1; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.stop_token_ids = {5}; }).empty());
  CHECK(other({.length_penalty = -1, .stopping = early_stopping::on}).empty());
  CHECK(other({.groups = 2, .diversity_penalty = 0.5}).empty());
  CHECK(blamed([] { searching({.width = 129}).validate(100); }) == "num_beams");
  CHECK(other({.length_penalty = 11}) == "length_penalty");
  CHECK(other({.groups = 2, .diversity_penalty = std::numeric_limits<float>::quiet_NaN()}) == "diversity_penalty");
  CHECK(blamed_with(beams, [](auto& p) { p.n = 5; }) == "n");
  CHECK(blamed_with(beams, [](auto& p) { p.best_of = 4; }) == "best_of");
  CHECK(blamed_with(beams, [](auto& p) { p.rank = best_of_rank::mean; }) == "best_of_rank");
  CHECK(other({.groups = 3, .diversity_penalty = 1}) == "num_beam_groups");
  CHECK(other({.groups = 8, .diversity_penalty = 1}) == "num_beam_groups");
  CHECK(other({.groups = 2}) == "diversity_penalty");
  CHECK(other({.diversity_penalty = 1}) == "diversity_penalty");
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0.7f; }) == "temperature");
  CHECK(blamed_with(beams, [](auto& p) { p.top_k = 5; }) == "top_k");
  CHECK(blamed_with(beams, [](auto& p) { p.top_p = 0.9f; }) == "top_p");
  CHECK(blamed_with(beams, [](auto& p) { p.min_p = 0.1f; }) == "min_p");
  CHECK(blamed_with(beams, [](auto& p) { p.xtc_probability = 0.5f; }) == "xtc_probability");
  CHECK(blamed_with(beams, [](auto& p) { p.mirostat = 2; }) == "mirostat");
}

TEST_CASE("Beams take processors and stop strings; drawn ones temperature and filters, too") {
  auto beams = searching({.width = 4});
  CHECK(blamed_with(beams, [](auto& p) { p.repetition_penalty = 1.1f, p.presence_penalty = 1; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.frequency_penalty = 1, p.no_repeat_ngram_size = 2; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.logit_bias = {{1, 2.f}}; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.stop = std::vector<std::string>{"x"}; }).empty());
  beams = searching({.width = 4, .sampled = true});
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0.7f, p.top_k = 5, p.top_p = 0.9f; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0; }) == "temperature");
  CHECK(blamed([] { searching({.width = 4, .groups = 2, .diversity_penalty = 1, .sampled = true}).validate(100); }) ==
        "num_beam_groups");
}

TEST_CASE("Stochastic beams have a temperature, and no ranking of their own") {
  const auto beams = stochastic(4);
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0.7f; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0; }) == "temperature");
  CHECK(blamed_with(beams, [](auto& p) { p.top_k = 5; }).empty());
  const auto beside = [](beam_options how) {
    how.width = 4;
    auto p = stochastic(0);
    p.techniques.set(troupe::beams(how));
    return blamed([&] { p.settle(nothing_given); });
  };
  CHECK(beside({}).empty());
  CHECK(beside({.length_penalty = 0}) == "length_penalty");
  CHECK(beside({.stopping = early_stopping::on}) == "early_stopping");
  CHECK(beside({.groups = 2, .diversity_penalty = 1}) == "num_beam_groups");
}

TEST_CASE("The words of early_stopping and best_of_rank are known, others refused") {
  CHECK(parse_early_stopping("true") == early_stopping::on);
  CHECK(parse_early_stopping("false") == early_stopping::off);
  CHECK(parse_early_stopping("never") == early_stopping::never);
  CHECK(blamed([] { parse_early_stopping("always"); }) == "early_stopping");
  CHECK(parse_best_of_rank("cumulative") == best_of_rank::cumulative);
  CHECK(parse_best_of_rank("mean") == best_of_rank::mean);
  CHECK(blamed([] { parse_best_of_rank("median"); }) == "best_of_rank");
}
