#include "api/record/recorder.hpp"

#include "runtime/support/files/checksum.hpp"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_clients = 4096; // that have numbers of their own

template <class T>
std::uint64_t checksum_of(const std::vector<T>& values) {
  checksum sum;
  sum.add(std::as_bytes(std::span(values)));
  return sum.value();
}

std::string_view recorded_end_of(finish_reason why) {
  switch (why) {
    case finish_reason::stop: return "stop";
    case finish_reason::length: return "length";
    case finish_reason::cancelled: return "cancelled";
    case finish_reason::timeout: return "timeout";
  }
  return {};
}

} // namespace

void heard_answers::hear(std::size_t prompt, const event& what) {
  auto& its = prompts_[prompt];
  if (const auto* token = std::get_if<token_event>(&what)) {
    its.scores.insert(its.scores.end(), token->prompt.begin(), token->prompt.end());
    if (token->token_ids.empty() && !token->finish)
      return;
    auto& answer = its.answers[token->index];
    answer.tokens += token->token_ids.size();
    answer.ids.insert(answer.ids.end(), token->token_ids.begin(), token->token_ids.end());
    for (const auto& each : token->logprobs)
      answer.logprobs.push_back(each.logprob);
    if (token->finish)
      answer.finish = recorded_end_of(*token->finish);
  } else if (const auto* done = std::get_if<done_event>(&what)) {
    its.its.tokens = done->prompt_tokens;
    its.its.cached = done->cached_tokens;
    if (!done->embedding.empty())
      its.its.values = checksum_of(done->embedding);
  }
}

std::vector<recorded_prompt> heard_answers::prompts(bool with_ids) const {
  std::vector<recorded_prompt> all;
  for (const auto& [number, each] : prompts_) {
    all.resize(number + 1);
    auto& its = all.back();
    its = each.its;
    for (const auto& [index, answer] : each.answers) {
      auto& copy = its.answers.emplace_back(answer);
      copy.logprobs.resize(copy.ids.size()); // what is not known is 0
      if (!with_ids)
        copy.ids = {}, copy.logprobs = {};
    }
    if (!each.scores.empty()) {
      std::vector<float> scores;
      for (const auto& token : each.scores)
        scores.push_back(token.logprob);
      its.values = checksum_of(scores);
    }
  }
  return all;
}

struct recorder::request {
  const std::shared_ptr<recorder> owner;
  const std::uint64_t number;

  std::mutex mutex; // guards what follows
  heard_answers answers = {};
  std::map<std::size_t, std::pair<std::uint64_t, int>> asked = {}; // by prompt: seed, most tokens
  std::string model = {};
  record_time first = {};
  unsigned status = 0;
  bool ended = false;

  request(std::shared_ptr<recorder> of, std::uint64_t n) : owner(std::move(of)), number(n) {}
  ~request() { end(); }

  void hear(std::size_t prompt, const event& what) {
    const std::lock_guard lock(mutex);
    if (ended)
      return;
    if (const auto* token = std::get_if<token_event>(&what); token && !token->token_ids.empty() && first.count() == 0)
      first = owner->now();
    answers.hear(prompt, what);
    if (status == 0 && std::holds_alternative<done_event>(what)) // its connection may have gone
      status = 200;
  }

  void end() {
    const std::lock_guard lock(mutex);
    if (std::exchange(ended, true))
      return;
    try {
      recorded_end line{number, owner->now(), first, status, model, answers.prompts(owner->with_prompts_)};
      line.prompts.resize(std::max(line.prompts.size(), asked.size()));
      for (const auto& [prompt, its] : asked)
        std::tie(line.prompts.at(prompt).seed, line.prompts.at(prompt).max_tokens) = its;
      owner->add(line);
    } catch (...) { // out of memory
      ++owner->lost_;
    }
    answers = {};
  }
};

recorder::recorder(std::unique_ptr<record_folder> folder, bool with_prompts)
  : folder_(std::move(folder)), with_prompts_(with_prompts) {}

recorder::~recorder() = default;

record_time recorder::now() const {
  return std::chrono::duration_cast<record_time>(std::chrono::steady_clock::now() - begun_);
}

void recorder::add(const recorded_line& what) {
  if (!folder_->add(what))
    ++lost_;
}

void recorder::add_model(const std::string& name, const std::string& files) { add(recorded_model{name, files}); }

recorder::request_ptr recorder::begin(std::string_view id, std::string_view endpoint, std::string_view client,
                                      std::string_view body) {
  const auto number = ++recorded_;
  std::size_t of_client = 0;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = clients_.find(client); known != clients_.end())
      of_client = known->second;
    else if (clients_.size() < most_clients)
      of_client = clients_.emplace(client, clients_.size() + 1).first->second;
  }
  add(recorded_begin{number, now(), std::string(id), std::string(endpoint), std::to_string(of_client),
                     std::string(with_prompts_ ? body : std::string_view())});
  return std::make_shared<request>(shared_from_this(), number);
}

void recorder::end(const request_ptr& which, unsigned status) {
  if (!which)
    return;
  {
    const std::lock_guard lock(which->mutex);
    which->status = status;
  }
  which->end();
}

event_sink recorder::listen(const request_ptr& which, std::size_t prompt, generation& asked, event_sink to) {
  if (!which)
    return to;
  const bool unasked = asked.sampling.logprobs < 0;
  if (unasked && which->owner->with_prompts_)
    asked.sampling.logprobs = 0;
  {
    const std::lock_guard lock(which->mutex);
    which->asked[prompt] = {asked.sampling.seed, asked.sampling.max_tokens};
    which->model = asked.model;
  }
  return [which, prompt, unasked, to = std::move(to)](event what) {
    which->hear(prompt, what);
    if (auto* token = std::get_if<token_event>(&what); token && unasked)
      token->logprobs = {};
    to(std::move(what));
  };
}

} // namespace troupe
