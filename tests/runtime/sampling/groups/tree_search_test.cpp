// Monte-Carlo tree search: it finds what greedy choices and beams miss, and is a function of the request.
#include "runtime/techniques/amateur/technique.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/guidance/technique.hpp"
#include "runtime/techniques/tree_search/technique.hpp"
#include "runtime/techniques/tree_search/tree_search.hpp"
#include "tests/runtime/techniques/tree_search/edit_search.hpp"

#include "runtime/support/json/json.hpp"
#include "runtime/techniques/tree_search/search_tree.hpp"
#include "tests/runtime/sampling/groups/table_models.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t trap_vocab = 12;
constexpr std::size_t trap_length = 5;

/// A trap: what begins with token 7, less likely than five others, goes on almost surely; all else is even.
std::vector<float> trap(std::span<const token_id> sequence) {
  std::vector<float> row(trap_vocab, 0.f);
  const auto answer = sequence.subspan(1);
  if (answer.empty()) {
    for (const auto id : {1, 2, 3, 4, 5})
      row[static_cast<std::size_t>(id)] = 2.f - 0.01f * static_cast<float>(id);
    row[7] = 1.5f;
  } else if (answer.front() == 7) {
    row[answer.size()] = 8; // the token 1, 2, 3, ...
  } else {
    row[(answer.size() * 5 + static_cast<std::size_t>(answer.back())) % trap_vocab] = 1;
  }
  return row;
}

double log_softmax(const std::vector<float>& row, token_id id) {
  double sum = 0;
  for (const auto x : row)
    sum += std::exp(static_cast<double>(x));
  return static_cast<double>(row[static_cast<std::size_t>(id)]) - std::log(sum);
}

/// The likeliest of all answers of `length` tokens.
std::pair<std::vector<token_id>, double> likeliest_answer(const language_model& model, std::size_t vocab,
                                                          std::vector<token_id> sequence, std::size_t length) {
  if (length == 0)
    return {};
  const auto row = model(sequence);
  std::pair<std::vector<token_id>, double> best{{}, -1e9};
  for (std::size_t id = 0; id < vocab; ++id) {
    sequence.push_back(static_cast<token_id>(id));
    auto [ids, logprob] = likeliest_answer(model, vocab, sequence, length - 1);
    sequence.pop_back();
    logprob += log_softmax(row, static_cast<token_id>(id));
    if (logprob > best.second) {
      ids.insert(ids.begin(), static_cast<token_id>(id));
      best = {ids, logprob};
    }
  }
  return best;
}

sampling_params searching(int simulations, int parallel, std::size_t length) {
  sampling_params p;
  p.techniques.set(searched_by({.simulations = simulations, .branching = 8, .parallel = parallel}));
  p.max_tokens = static_cast<int>(length);
  p.temperature = 0;
  return p;
}

std::vector<hypothesis> found_by_search(const sampling_params& p, const language_model& model,
                                        const std::vector<token_id>& prompt, const std::vector<token_id>& eos = {},
                                        token_text_ptr text = nullptr) {
  p.validate(1000);
  const auto strategy = make_group_strategy(std::make_shared<const sampling_params>(p), eos, prompt, {}, 0,
                                            std::move(text));
  return drive(*strategy, model, p, prompt);
}

std::vector<token_id> first_of(const std::vector<hypothesis>& found) {
  REQUIRE(!found.empty());
  return ids_of(found.front());
}

} // namespace

TEST_CASE("Tree search finds the likeliest answer, which greedy choices and four beams miss") {
  const auto [best, logprob] = likeliest_answer(trap, trap_vocab, {0}, trap_length);
  CHECK(best == std::vector<token_id>{7, 1, 2, 3, 4});

  std::vector<token_id> greedy{0};
  for (std::size_t i = 0; i < trap_length; ++i) {
    const auto row = trap(greedy);
    greedy.push_back(static_cast<token_id>(std::ranges::max_element(row) - row.begin()));
  }
  CHECK(std::vector(greedy.begin() + 1, greedy.end()) != best);

  sampling_params beams;
  beams.techniques.set(troupe::beams({.width = 4}));
  beams.max_tokens = static_cast<int>(trap_length);
  const auto by_beams = make_group_strategy(std::make_shared<const sampling_params>(beams), {},
                                            std::vector<token_id>{0});
  CHECK(first_of(drive(*by_beams, trap, beams, {0})) != best);

  const auto found = found_by_search(searching(32, 4, trap_length), trap, {0});
  CHECK(first_of(found) == best);
  CHECK(found.front().score == doctest::Approx(logprob));
  CHECK(found.front().cumulative_logprob == doctest::Approx(logprob));
}

TEST_CASE("A search that a model values finds what that likes, however unlikely, and judges each simulation once") {
  // It likes answers that begin with the token 9, the more often the better.
  std::size_t asked = 0;
  std::set<std::vector<token_id>> seen;
  const auto worth = [&](std::span<const token_id> answer) {
    ++asked;
    CHECK(answer.size() <= trap_length);
    CHECK(seen.emplace(answer.begin(), answer.end()).second); // greedily, no answer is tried twice
    const auto other = std::ranges::find_if(answer, [](token_id id) { return id != 9; });
    return static_cast<double>(other - answer.begin()) / static_cast<double>(trap_length);
  };
  auto p = searching(800, 6, trap_length);
  testing::edit_search(p)->branching = trap_vocab;
  const std::vector<token_id> wanted(trap_length, 9);
  CHECK(first_of(found_by_search(p, trap, {0}, {11})) != wanted);
  testing::edit_search(p)->value = search_value::model;
  p.n = 3;
  p.validate(1000);
  const auto found = [&] {
    const auto strategy = make_group_strategy(std::make_shared<const sampling_params>(p), {11},
                                              std::vector<token_id>{0});
    return drive(*strategy, trap, p, {0}, {}, worth);
  };
  const auto best = found();
  CHECK(first_of(best) == wanted);
  CHECK(best.front().score == 1);
  CHECK(best.front().tokens.back().finish == sampled_token::finish::length);
  double sum = 0; // of the log-probabilities, which are the model's own all the same
  std::vector<token_id> before{0};
  for (const auto id : wanted) {
    sum += log_softmax(trap(before), id);
    before.push_back(id);
  }
  CHECK(best.front().cumulative_logprob == doctest::Approx(sum));
  REQUIRE(best.size() == 3);
  CHECK(best[1].score >= best[2].score);
  CHECK(asked <= 800);
  CHECK(asked > 400);

  asked = 0;
  seen.clear();
  const auto again = found();
  for (std::size_t i = 0; i < best.size(); ++i)
    CHECK(ids_of(again[i]) == ids_of(best[i]));
}

TEST_CASE("What may end an answer at once is judged when the search comes to it, also where nothing else is left") {
  // One token, then the end: all answers are ends, and only judging goes on.
  auto p = searching(40, 4, 2);
  testing::edit_search(p)->branching = 6;
  testing::edit_search(p)->value = search_value::model;
  std::vector<std::vector<token_id>> asked;
  const auto model = [](std::span<const token_id> sequence) {
    return sequence.size() == 1 ? std::vector<float>{0, 1, 2, 3, 4, 5} : std::vector<float>{5, 4, 3, 2, 1, 0};
  };
  const auto strategy = make_group_strategy(std::make_shared<const sampling_params>(p), {5}, std::vector<token_id>{0});
  const auto found = drive(*strategy, model, p, {0}, {}, [&](std::span<const token_id> answer) {
    asked.emplace_back(answer.begin(), answer.end());
    return answer.size() == 1 ? 0.25 : answer[0] == 1 && answer[1] == 2 ? 0.75 : 0.5;
  });
  CHECK(first_of(found) == std::vector<token_id>{1, 2});
  CHECK(asked.size() == 31); // all that there are
  const std::set<std::vector<token_id>> different(asked.begin(), asked.end());
  CHECK(different.size() == asked.size());
  CHECK(different.contains({5})); // the end at once
}

TEST_CASE("Over tables, enough simulations find the likeliest answers that there are") {
  const auto document = json::document::parse(content(data() / "beams.json"), "beams.json");
  int number = 0;
  for (auto table : json::array(document.root()["tables"])) {
    CAPTURE(number);
    ++number;
    const auto model = read_table(table);
    const auto [best, logprob] = likeliest_answer(model, 24, {5}, 3);
    auto p = searching(600, 8, 3);
    testing::edit_search(p)->branching = 24;
    const auto found = found_by_search(p, model, {5});
    CHECK(first_of(found) == best);
    CHECK(found.front().score == doctest::Approx(logprob));
  }
}

TEST_CASE("A search that has tried all ends; its answers are the best, each once") {
  auto p = searching(5000, 6, 3);
  testing::edit_search(p)->branching = 12;
  p.n = 10;
  const auto found = found_by_search(p, trap, {0});
  REQUIRE(found.size() == 10);
  std::set<std::vector<token_id>> all;
  for (std::size_t i = 0; i < found.size(); ++i) {
    all.insert(ids_of(found[i]));
    CHECK(found[i].tokens.size() == 3);
    CHECK((i == 0 || found[i].score <= found[i - 1].score));
    double sum = 0;
    for (const auto& token : found[i].tokens)
      sum += static_cast<double>(token.logprob);
    CHECK(found[i].cumulative_logprob == doctest::Approx(sum));
  }
  CHECK(all.size() == 10);
}

TEST_CASE("No two greedy simulations find the same answer") {
  const auto document = json::document::parse(content(data() / "beams.json"), "beams.json");
  const auto model = read_table(json::array(document.root()["tables"]).at(0).value());
  auto p = searching(50, 7, 12);
  p.n = 50;
  std::set<std::vector<token_id>> all;
  for (const auto& h : found_by_search(p, model, {5}))
    all.insert(ids_of(h));
  CHECK(all.size() == 50);
}

TEST_CASE("A search is a function of its seed and of how many simulations run side by side") {
  const auto document = json::document::parse(content(data() / "beams.json"), "beams.json");
  const auto model = read_table(json::array(document.root()["tables"]).at(1).value());
  const auto found = [&](std::uint64_t seed) {
    auto p = searching(12, 5, 8);
    testing::edit_search(p)->branching = 3;
    p.temperature = 1;
    p.seed = seed;
    p.n = 8;
    std::vector<std::vector<token_id>> all;
    for (const auto& h : found_by_search(p, model, {3, 4}, {6}))
      all.push_back(ids_of(h));
    return all;
  };
  CHECK(found(1) == found(1));
  CHECK(found(1) != found(2));
}

TEST_CASE("Ends, stop strings, biases and log-probabilities are those of any answer") {
  const auto document = json::document::parse(content(data() / "beams.json"), "beams.json");
  const auto model = read_table(json::array(document.root()["tables"]).at(2).value());
  const auto letters = std::make_shared<const token_text>(
    [](token_id id) { return std::string(1, static_cast<char>('a' + id)); });
  auto p = searching(40, 4, 6);
  p.stop = std::vector<std::string>{"cd", "f"};
  p.logit_bias = {{9, -100.f}};
  p.min_tokens = 2;
  p.logprobs = 2;
  p.n = 20;
  const auto found = found_by_search(p, model, {1}, {2, 4}, letters);
  REQUIRE(found.size() > 5);
  using finish = enum sampled_token::finish;
  for (const auto& h : found) {
    std::string text;
    for (std::size_t i = 0; i < h.tokens.size(); ++i) {
      const auto& token = h.tokens[i];
      const bool last = i + 1 == h.tokens.size();
      CHECK(token.top.size() == 2);
      CHECK(token.id != 9);
      CHECK((last || (token.id != 2 && token.id != 4)));
      CHECK((token.finish != finish::none) == last);
      text += static_cast<char>('a' + token.id);
    }
    const auto why = h.tokens.back().finish;
    CHECK(h.tokens.size() >= (why == finish::eos ? 3 : 2));
    CHECK((why == finish::text) == (text.ends_with("cd") || (text.ends_with("f") && text.size() > 2)));
    CHECK((why != finish::length || text.size() == 6));
  }
}

TEST_CASE("The tree tries each beginning once at a time, and none of which all is known") {
  search_tree tree(2);
  REQUIRE(tree.select() == search_tree::root);
  CHECK_FALSE(tree.select());
  const search_tree::option options[] = {{10, -0.1}, {11, -3}, {12, -5}};
  tree.expand(search_tree::root, options);
  tree.close(search_tree::root, 1, -3);
  std::set<search_tree::node> chosen;
  for (int i = 0; i < 2; ++i)
    chosen.insert(tree.select().value());
  CHECK(chosen == std::set{tree.child(search_tree::root, 0), tree.child(search_tree::root, 2)});
  CHECK_FALSE(tree.select());
  tree.finish(search_tree::root, -1);
  for (const auto n : chosen) {
    tree.expand(n, {});
    tree.finish(n, -2);
  }
  CHECK_FALSE(tree.select());
  CHECK(tree.path(tree.child(search_tree::root, 2)) == std::vector<token_id>{12});

  search_tree followed(2);
  followed.select();
  followed.expand(search_tree::root, options);
  const auto on = followed.descend(search_tree::root, 0); // which nobody else begins with meanwhile
  CHECK(followed.select() != on);
  followed.expand(on, options);
  followed.finish(on, -1);
  for (int i = 0; i < 4; ++i) { // the other option of the root, and three behind the first
    const auto n = followed.select();
    CHECK(n.has_value());
  }
  CHECK_FALSE(followed.select());
}

TEST_CASE("What a search cannot mean, or costs too much, is refused by its field") {
  const auto blamed_for = [](auto change) {
    auto p = searching(10, 2, 5);
    change(p);
    try {
      p.validate(100);
    } catch (const failure& f) {
      CHECK(f.what_failed().code == errc::bad_request);
      return f.what_failed().param;
    }
    return std::string();
  };
  CHECK(blamed_for([](auto&) {}).empty());
  CHECK(blamed_for([](auto& p) { p.n = 10; }).empty());
  CHECK(blamed_for([](auto& p) { p.n = 11; }) == "n");
  CHECK(blamed_for([](auto& p) { p.techniques.set(troupe::beams({.width = 2})); }) == "num_beams");
  CHECK(blamed_for([](auto& p) { p.best_of = 2; }) == "best_of");
  CHECK(blamed_for([](auto& p) { p.techniques.set(guided_by(2)); }) == "guidance_scale");
  CHECK(blamed_for([](auto& p) { p.techniques.set(contrasted_by({.beta = 1})); }) == "contrastive_beta");
  CHECK(blamed_for([](auto& p) { p.mirostat = 2, p.temperature = 1; }) == "mirostat");
  CHECK(blamed_for([](auto& p) { testing::edit_search(p)->branching = 0; }) == "search");
  CHECK(blamed_for([](auto& p) { testing::edit_search(p)->parallel = 129; }) == "search");
  CHECK(blamed_for([](auto& p) { testing::edit_search(p)->exploration = NAN; }) == "search");
  CHECK(blamed_for([](auto& p) { testing::edit_search(p)->simulations = 60000, p.max_tokens = 100; }) == "search");
  CHECK(blamed_for([](auto& p) {
          testing::edit_search(p)->simulations = 60000;
          testing::edit_search(p)->branching = 64;
        }) == "search");
}
