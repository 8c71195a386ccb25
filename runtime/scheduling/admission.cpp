// What clients ask of the scheduler: requests are submitted, cancelled, finished, paused.
#include "runtime/scheduling/scheduler.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

std::optional<error> scheduler::submit(admission a) {
  const auto& p = *a.params;
  const std::string field = p.num_beams == p.width() ? "num_beams"
    : p.paired()                                     ? "guidance_scale"
    : p.best_of == p.width()                         ? "best_of"
                                                     : "n";
  const auto most = p.grouped() ? std::min(limits_.max_sequences, limits_.step_tokens) : limits_.max_sequences;
  if (p.width() > most)
    return error{errc::bad_request,
                 "`" + field + "` " + (p.paired() ? "takes " : "is ") + std::to_string(p.width()) + ", but at most " +
                   std::to_string(most) + " sequences can run at once",
                 field};
  if (!a.again && waiting_.size() >= static_cast<std::size_t>(limits_.max_queue) + free_slots_.size()) {
    const error full{
      errc::overloaded, "the queue is full: " + std::to_string(waiting_.size()) + " requests wait already", {}};
    const auto dropped = waiting_last_of_largest(a.client);
    if (!dropped)
      return full;
    failed_.push_back({*dropped, full});
    cancel(*dropped);
  }
  sequence s;
  s.id = {a.request, 0};
  s.client = std::move(a.client);
  s.priority = a.priority;
  s.arrival = a.arrival;
  s.params = std::move(a.params);
  s.prompt = std::move(a.prompt);
  s.tokens = *s.prompt;
  s.last_row = s.known() + s.params->max_tokens - 1;
  s.siblings = a.resumed.empty() && !s.params->paired() ? s.params->width() - 1 : 0;
  if (s.params->prompt_logprobs >= 0 && a.resumed.empty())
    s.scored = 0;
  s.embed = a.embed;
  if (s.embeds()) { // the last row matters, too, and for a prompt's first state no other
    s.last_row = s.embed == pooling::cls ? 1 : s.known();
    s.scored = s.embed == pooling::last ? s.known() - 1 : 0;
  }
  if (s.grouped())
    groups_[a.request].members = {s.id};
  s.prediction = std::move(a.prediction);
  s.guide = std::move(a.guide);
  s.features = std::move(a.features);
  for (auto& r : a.resumed) {
    auto one = s;
    one.id.index = r.index;
    one.tokens.insert(one.tokens.end(), r.emitted.begin(), r.emitted.end());
    one.mirostat_mu = r.mirostat_mu;
    if (s.params->paired())
      add_twin(one, a.negative);
    add(std::move(one));
  }
  if (a.resumed.empty() && s.params->paired())
    add_twin(s, a.negative);
  if (a.resumed.empty())
    add(std::move(s));
  changed();
  return std::nullopt;
}

/// The request to give up for one of `newcomer`: that of the client who has most that wait, unless an answer of it has
/// begun.
std::optional<std::uint64_t> scheduler::waiting_last_of_largest(const std::string& newcomer) const {
  const auto largest = waiting_.largest_beside(newcomer);
  if (!largest)
    return std::nullopt;
  const auto& places = waiting_.by_client().at(*largest);
  const auto last = std::find_if(places.rbegin(), places.rend(),
                                 [this](const fair_queue::place& at) { return !sequences_.at(at.id).announced; });
  return last == places.rend() ? std::nullopt : std::optional(last->id.request);
}

void scheduler::enqueue(sequence& s) {
  if (s.running())
    running_.emplace(order(s), &s);
  else if (s.paused())
    paused_.emplace(order(s), &s);
  else
    waiting_.add(s.client, place_of(s));
}

void scheduler::dequeue(const sequence& s) {
  if (s.running())
    running_.erase(order(s));
  else if (s.paused())
    paused_.erase(order(s));
  else
    waiting_.remove(s.client, place_of(s));
}

scheduler::sequence& scheduler::add(sequence s) {
  auto& stored = sequences_.insert_or_assign(s.id, std::move(s)).first->second;
  enqueue(stored);
  paused_count_ += stored.paused();
  if (stored.running())
    start_guessing(stored);
  return stored;
}

// The same answer after another prompt. Both are judged together; nothing is told of the twin.
void scheduler::add_twin(sequence s, token_list prompt) {
  auto& g = groups_.at(s.id.request);
  s.id.index = g.next_index++;
  std::vector<token_id> tokens(*prompt);
  tokens.insert(tokens.end(), s.tokens.begin() + s.prompt_tokens(), s.tokens.end());
  s.tokens = std::move(tokens);
  s.last_row += static_cast<std::int32_t>(std::ssize(*prompt) - std::ssize(*s.prompt));
  s.prompt = std::move(prompt);
  s.scored = all;
  s.announced = true;
  g.members.push_back(s.id);
  add(std::move(s));
}

// While a sequence runs, it can have guesses.
void scheduler::start_guessing(const sequence& s) {
  if (proposer_ && s.guesses_help())
    proposer_->begin(s.id, s.params, s.tokens, s.prompt->size(),
                     s.prediction ? std::span<const token_id>(*s.prediction) : std::span<const token_id>());
}

void scheduler::cancel(std::uint64_t request) {
  auto first = sequences_.lower_bound({request, 0});
  while (first != sequences_.end() && first->first.request == request)
    end((first++)->first);
  if (const auto g = groups_.find(request); g != groups_.end()) {
    free_slots_.insert(free_slots_.end(), g->second.spare_slots.begin(), g->second.spare_slots.end());
    groups_.erase(g);
  }
}

void scheduler::finish(sequence_id id) {
  if (groups_.contains(id.request))
    return cancel(id.request);
  end(id);
}

std::vector<std::uint64_t> scheduler::pause(std::uint64_t request, bool paused) {
  std::vector<std::uint64_t> dropped;
  const auto first = sequences_.lower_bound({request, 0});
  if (first == sequences_.end() || first->first.request != request || first->second.paused() == paused)
    return dropped;
  if (paused)
    pauses_.emplace(++last_pause_, request);
  else
    pauses_.erase(first->second.paused_since);
  for (auto i = first; i != sequences_.end() && i->first.request == request; ++i) {
    auto& s = i->second;
    dequeue(s);
    s.paused_since = paused ? last_pause_ : 0;
    enqueue(s);
    paused_count_ += paused ? 1 : -1;
  }
  changed();
  while (paused_count_ > static_cast<std::size_t>(limits_.max_queue + limits_.max_sequences)) {
    dropped.push_back(pauses_.begin()->second);
    cancel(dropped.back());
  }
  return dropped;
}

} // namespace troupe
