#include "runtime/techniques/tree_search/tree_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace troupe {

namespace {

std::size_t common_start(std::span<const token_id> a, std::span<const token_id> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::vector<token_id> ids_in(std::span<const sampled_token> tokens) {
  std::vector<token_id> ids;
  for (const auto& t : tokens)
    ids.push_back(t.id);
  return ids;
}

} // namespace

tree_search::tree_search(const search_options& how, group_start start)
  : how_(how),
    params_(std::move(start.params)),
    eos_ids_(std::move(start.eos_ids)),
    prompt_(start.prompt.begin(), start.prompt.end()),
    text_(std::move(start.text)),
    endings_(*params_, eos_ids_),
    tree_(how_.exploration) {
  place_.push_back(0);
  if (const auto first = tree_.select())
    running_.push_back(begin(*first));
}

// Its tokens so far, with the state that the request's law and its stop strings have behind them.
tree_search::simulation tree_search::begin(search_tree::node n) {
  const auto path = tree_.path(n);
  simulation s{.begins = n,
               .law = sequence_sampler(params_, eos_ids_, prompt_, path, static_cast<std::uint32_t>(begun_)),
               .text = std::nullopt,
               .tokens = {}};
  ++begun_;
  s.tokens.resize(path.size());
  for (auto at = n; at != search_tree::root; at = tree_.parent(at)) {
    auto& token = s.tokens[tree_.depth(at) - 1];
    token.id = tree_.token(at);
    token.logprob = static_cast<float>(tree_.logprob(at));
    if (!tops_.empty())
      token.top = tops_[place_[tree_.parent(at)]];
    s.logprob += tree_.logprob(at);
  }
  if (text_ && !params_->stop.empty()) {
    s.text.emplace(params_->stop);
    for (std::size_t i = 0; i < path.size(); ++i)
      s.text->push((*text_)(path[i]), i + 1 > static_cast<std::size_t>(params_->min_tokens));
  }
  return s;
}

std::vector<group_child> tree_search::judge(rows logits, rows allowed, sampling_scratch& scratch) {
  judged_rows_.clear();
  children_.clear();
  for (std::size_t i = 0; i < running_.size(); ++i) {
    auto& s = running_[i];
    judged_rows_.push_back(ids_in(s.tokens));
    const row_likelihoods row(logits[i], static_cast<std::size_t>(std::max(params_->logprobs, 0)), scratch.tokens);
    std::vector<search_tree::option> options;
    if (std::exchange(s.at_leaf, false))
      options = expand(s, row, logits[i], allowed[i], scratch);
    draw(s, row, logits[i], allowed[i], options, scratch);
    if (params_->greedy() && !s.ended)
      follow(s, options);
  }
  std::vector<simulation> next;
  for (std::size_t i = 0; i < running_.size(); ++i)
    if (auto& s = running_[i]; !s.ended) {
      children_.push_back({static_cast<std::uint32_t>(i), s.tokens.back().id});
      next.push_back(std::move(s));
    }
  running_ = std::move(next);
  return advance();
}

std::vector<std::vector<token_id>> tree_search::awaited() const {
  std::vector<std::vector<token_id>> answers;
  for (const auto& each : judging_)
    answers.push_back(ids_in(each.tokens));
  return answers;
}

std::vector<group_child> tree_search::go_on(std::span<const double> values) {
  for (std::size_t i = 0; auto& each : std::exchange(judging_, {})) {
    tree_.finish(each.of, values[i]);
    keep(std::move(each.tokens), each.logprob, values[i]);
    ++i;
  }
  return advance();
}

// Nothing is selected before all values are known that selecting goes by.
std::vector<group_child> tree_search::advance() {
  if (judging_.empty())
    start(static_cast<std::size_t>(std::min(how_.parallel, how_.simulations)) - running_.size());
  if (!judging_.empty())
    return {};
  if (children_.empty() && best_.empty())
    throw why_ ? failure(why_->code, why_->message, why_->param) : nothing_allowed(*params_);
  return std::move(children_);
}

void tree_search::start(std::size_t most) {
  for (std::size_t started = 0; started < most && begun_ < how_.simulations; ++started) {
    const auto chosen = tree_.select();
    if (!chosen)
      break;
    auto simulation = begin(*chosen);
    if (const auto known = ends_.find(*chosen); known != ends_.end()) {
      simulation.tokens.back().finish = known->second;
      judging_.push_back({*chosen, std::move(simulation.tokens), simulation.logprob});
      continue;
    }
    running_.push_back(std::move(simulation));
    auto path = tree_.path(*chosen);
    std::size_t parent = 0, alike = 0;
    for (std::size_t i = 0; i < judged_rows_.size(); ++i)
      if (const auto common = common_start(judged_rows_[i], path); common > alike || i == 0) {
        parent = i;
        alike = common;
      }
    group_child child{static_cast<std::uint32_t>(parent), path.back()};
    if (alike < judged_rows_[parent].size() || path.size() != alike + 1)
      child.anew = std::move(path);
    children_.push_back(std::move(child));
  }
}

// The next row of a greedy simulation, too, tells what may follow.
void tree_search::follow(simulation& s, std::span<const search_tree::option> options) {
  const auto taken = std::ranges::find(options, s.tokens.back().id, &search_tree::option::token);
  const auto most = static_cast<std::size_t>(most_search_nodes);
  if (taken == options.end() || tree_.size() + static_cast<std::size_t>(how_.branching) > most)
    return;
  s.begins = tree_.descend(s.begins, static_cast<std::size_t>(taken - options.begin()));
  s.at_leaf = true;
}

std::vector<search_tree::option> tree_search::expand(const simulation& s, const row_likelihoods& row,
                                                     std::span<const float> logits, std::span<const float> allowed,
                                                     sampling_scratch& scratch) {
  const auto reported = static_cast<std::size_t>(std::max(params_->logprobs, 0));
  if (reported > 0) {
    place_.resize(tree_.size());
    place_[s.begins] = static_cast<std::uint32_t>(tops_.size());
    tops_.push_back(row.top(reported));
  }
  std::vector<search_tree::option> options;
  const auto scores = s.law.edited(allowed, scratch.row);
  if (std::ranges::any_of(scores, [](float x) { return x > -std::numeric_limits<float>::infinity(); })) {
    scratch.tokens.reset(scores);
    auto ranked = row;
    ranked.rank(logits, static_cast<std::size_t>(how_.branching), scratch.tokens);
    for (const auto& token : ranked.likeliest())
      options.push_back({token.id, token.logprob});
  }
  tree_.expand(s.begins, options);
  place_.resize(tree_.size());
  for (std::size_t i = 0; i < options.size(); ++i) {
    const auto why = finish_of(options[i].token, s.tokens.size() + 1, s.text);
    if (why == sampled_token::finish::none)
      continue;
    if (how_.value == search_value::model) {
      ends_.emplace(tree_.child(s.begins, i), why);
      continue;
    }
    auto tokens = s.tokens;
    sampled_token last;
    last.id = options[i].token;
    last.logprob = static_cast<float>(options[i].logprob);
    last.top = row.top(reported);
    last.finish = why;
    tokens.push_back(std::move(last));
    const auto logprob = s.logprob + options[i].logprob;
    const auto worth = value(logprob, tokens.size());
    tree_.close(s.begins, i, worth);
    keep(std::move(tokens), logprob, worth);
  }
  return options;
}

void tree_search::draw(simulation& s, const row_likelihoods& row, std::span<const float> logits,
                       std::span<const float> allowed, std::span<const search_tree::option> options,
                       sampling_scratch& scratch) {
  sampled_token token;
  const auto before = s.text;
  try {
    token = s.law.sample(logits, allowed, scratch);
  } catch (const failure& f) {
    why_ = f.what_failed();
    return end(s, false, options);
  }
  const auto logprob = row.logprob(logits[static_cast<std::size_t>(token.id)]);
  token.logprob = static_cast<float>(logprob);
  token.finish = finish_of(token.id, s.tokens.size() + 1, before);
  if (s.text)
    s.text->push((*text_)(token.id), s.tokens.size() + 1 > static_cast<std::size_t>(params_->min_tokens));
  s.logprob += logprob;
  s.tokens.push_back(std::move(token));
  if (s.tokens.back().finish != sampled_token::finish::none)
    end(s, true, options);
}

// Where it ends with one of the options that its last row told the tree, nobody need try that one again; of those that
// are valued by likelihood all are known.
void tree_search::end(simulation& s, bool found, std::span<const search_tree::option> options) {
  s.ended = true;
  if (!found)
    return tree_.finish(s.begins, -std::numeric_limits<double>::infinity());
  if (how_.value != search_value::model) {
    const auto worth = value(s.logprob, s.tokens.size());
    tree_.finish(s.begins, worth);
    return keep(std::move(s.tokens), s.logprob, worth);
  }
  if (const auto taken = std::ranges::find(options, s.tokens.back().id, &search_tree::option::token);
      taken != options.end())
    s.begins = tree_.descend(s.begins, static_cast<std::size_t>(taken - options.begin()));
  judging_.push_back({s.begins, std::move(s.tokens), s.logprob});
}

enum sampled_token::finish tree_search::finish_of(token_id id, std::size_t tokens,
                                                  const std::optional<stop_matcher>& text) const {
  const auto why = endings_.of(id, tokens);
  const bool by_token = why == sampled_token::finish::eos || why == sampled_token::finish::stop_token;
  if (by_token || !text)
    return why;
  auto matcher = *text;
  const bool stopping = tokens > static_cast<std::size_t>(params_->min_tokens);
  return matcher.push((*text_)(id), stopping).stopped ? sampled_token::finish::text : why;
}

double tree_search::value(double logprob, std::size_t tokens) const {
  return logprob / std::pow(static_cast<double>(tokens), static_cast<double>(how_.length_penalty));
}

// Keeps the earliest of equal answers, and each answer once.
void tree_search::keep(std::vector<sampled_token> tokens, double logprob, double score) {
  ++found_;
  const auto same = [&](const hypothesis& h) {
    return std::ranges::equal(h.tokens, tokens, {}, &sampled_token::id, &sampled_token::id);
  };
  if (best_.size() == static_cast<std::size_t>(params_->n) && score <= best_.back().score)
    return;
  if (std::ranges::any_of(best_, same))
    return;
  const auto better = [](double worth, const hypothesis& h) { return worth > h.score; };
  best_.insert(std::upper_bound(best_.begin(), best_.end(), score, better), {std::move(tokens), logprob, score});
  if (best_.size() > static_cast<std::size_t>(params_->n))
    best_.pop_back();
}

} // namespace troupe
