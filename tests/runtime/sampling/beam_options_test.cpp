#include "runtime/sampling/beam_options.hpp"
#include "runtime/techniques/stochastic_beams/technique.hpp"

#include "runtime/support/error.hpp"

#include <doctest/doctest.h>

#include <functional>

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

sampling_params four_beams() {
  sampling_params p;
  p.num_beams = 4;
  p.n = 2;
  return p;
}

} // namespace

TEST_CASE("The number of beams is what was asked for, else best_of, else n") {
  const auto settled = [](int num_beams, int best_of, int n, std::optional<bool> use) {
    sampling_params p;
    p.num_beams = num_beams;
    p.best_of = best_of;
    p.n = n;
    settle_beams(p, use);
    CHECK((p.num_beams == 0 || p.best_of == 0));
    return p.num_beams;
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
  sampling_params stochastic;
  stochastic.techniques.set(stochastic_beams());
  stochastic.n = 3;
  settle_beams(stochastic, std::nullopt);
  CHECK(stochastic.num_beams == 3);
}

TEST_CASE("Beams are refused where use_beam_search is false or best_of is another number") {
  sampling_params p;
  p.num_beams = 4;
  CHECK(blamed([&] { settle_beams(p, false); }) == "num_beams");
  p.best_of = 3;
  CHECK(blamed([&] { settle_beams(p, true); }) == "best_of");
  sampling_params stochastic;
  stochastic.techniques.set(stochastic_beams());
  CHECK(blamed([&] { settle_beams(stochastic, false); }) == "stochastic_beams");
}

TEST_CASE("Options of beams are refused without beams, those of best_of without more candidates than n") {
  const sampling_params plain;
  CHECK(blamed_with(plain, [](auto& p) { p.techniques.set(stochastic_beams()); }) == "stochastic_beams");
  CHECK(blamed_with(plain, [](auto& p) { p.num_beam_groups = 2; }) == "num_beam_groups");
  CHECK(blamed_with(plain, [](auto& p) { p.diversity_penalty = 1; }) == "diversity_penalty");
  CHECK(blamed_with(plain, [](auto& p) { p.length_penalty = 0; }) == "length_penalty");
  CHECK(blamed_with(plain, [](auto& p) { p.stopping = early_stopping::never; }) == "early_stopping");
  CHECK(blamed_with(plain, [](auto& p) { p.best_of = 2, p.n = 3; }) == "best_of");
  CHECK(blamed_with(plain, [](auto& p) { p.rank = best_of_rank::mean; }) == "best_of_rank");
  CHECK(blamed_with(plain, [](auto& p) { p.best_of = p.n = 2, p.rank = best_of_rank::mean; }) == "best_of_rank");
  CHECK(blamed_with(plain, [](auto& p) { p.best_of = 4, p.n = 2, p.rank = best_of_rank::mean; }).empty());
  CHECK(blamed_with(plain, [](auto& p) { p.best_of = p.n = 2; }).empty());
}

TEST_CASE("What has no meaning beside beams is refused by its name") {
  const auto beams = four_beams();
  CHECK(blamed_with(beams, [](auto&) {}).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.top_k = -1; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.stop_token_ids = {5}; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.length_penalty = -1, p.stopping = early_stopping::on; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.num_beam_groups = 2, p.diversity_penalty = 0.5; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.n = 5; }) == "n");
  CHECK(blamed_with(beams, [](auto& p) { p.best_of = 4; }) == "best_of");
  CHECK(blamed_with(beams, [](auto& p) { p.rank = best_of_rank::mean; }) == "best_of_rank");
  CHECK(blamed_with(beams, [](auto& p) { p.num_beam_groups = 3, p.diversity_penalty = 1; }) == "num_beam_groups");
  CHECK(blamed_with(beams, [](auto& p) { p.num_beam_groups = 8, p.diversity_penalty = 1; }) == "num_beam_groups");
  CHECK(blamed_with(beams, [](auto& p) { p.num_beam_groups = 2; }) == "diversity_penalty");
  CHECK(blamed_with(beams, [](auto& p) { p.diversity_penalty = 1; }) == "diversity_penalty");
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0.7f; }) == "temperature");
  CHECK(blamed_with(beams, [](auto& p) { p.top_k = 5; }) == "top_k");
  CHECK(blamed_with(beams, [](auto& p) { p.top_p = 0.9f; }) == "top_p");
  CHECK(blamed_with(beams, [](auto& p) { p.min_p = 0.1f; }) == "min_p");
  CHECK(blamed_with(beams, [](auto& p) { p.xtc_probability = 0.5f; }) == "xtc_probability");
  CHECK(blamed_with(beams, [](auto& p) { p.mirostat = 2; }) == "mirostat");
}

TEST_CASE("Beams take processors and stop strings; drawn ones temperature and filters, too") {
  auto beams = four_beams();
  CHECK(blamed_with(beams, [](auto& p) { p.repetition_penalty = 1.1f, p.presence_penalty = 1; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.frequency_penalty = 1, p.no_repeat_ngram_size = 2; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.logit_bias = {{1, 2.f}}; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.stop = std::vector<std::string>{"x"}; }).empty());
  beams.beam_sampling = true;
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0.7f, p.top_k = 5, p.top_p = 0.9f; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0; }) == "temperature");
  CHECK(blamed_with(beams, [](auto& p) { p.num_beam_groups = 2, p.diversity_penalty = 1; }) == "num_beam_groups");
  CHECK(blamed_with({}, [](auto& p) { p.beam_sampling = true; }) == "do_sample");
}

TEST_CASE("Stochastic beams have a temperature, and no ranking of their own") {
  auto beams = four_beams();
  beams.techniques.set(stochastic_beams());
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0.7f; }).empty());
  CHECK(blamed_with(beams, [](auto& p) { p.temperature = 0; }) == "temperature");
  CHECK(blamed_with(beams, [](auto& p) { p.length_penalty = 0; }) == "length_penalty");
  CHECK(blamed_with(beams, [](auto& p) { p.stopping = early_stopping::on; }) == "early_stopping");
  CHECK(blamed_with(beams, [](auto& p) { p.num_beam_groups = 2, p.diversity_penalty = 1; }) == "num_beam_groups");
  CHECK(blamed_with(beams, [](auto& p) { p.top_k = 5; }).empty());
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
