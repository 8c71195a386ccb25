#include "runtime/scheduling/planning/row_demands.hpp"

#include "runtime/scheduling/blocks/block_chain.hpp"
#include "runtime/scheduling/planning/guess_trees.hpp"
#include "runtime/support/kv_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace troupe {

void row_demands::of_all() {
  blocks_of_new_ = 0;
  if (of_urgent_group())
    return;
  of_decoding();
  auto shares = divide_rows();
  of_prompts(shares);
  of_waiting(shares);
}

void row_demands::of(const scheduled_sequence& s, std::int32_t rows) {
  of(s, rows, s.running() ? relative{} : relative_of(s));
}

void row_demands::of(const scheduled_sequence& s, std::int32_t rows, const relative& its) {
  add({s.id, rows, nullptr, 0, s.planned}, s, its);
}

// A row for each of them, room for the longest line, and blocks for the others.
void row_demands::of_tree(const scheduled_sequence& s, std::int32_t known, const guess_run& guesses) {
  block_demand d{s.id, known + depth_of(guesses), nullptr, 0, s.planned};
  d.branches = known + static_cast<std::int32_t>(guesses.tokens.size()) - d.rows;
  d.spare = kernels::spare_blocks(row_parents(known, guesses.parents), s.planned);
  add(std::move(d), s, {});
}

// `its`: of one that does not run yet.
void row_demands::add(block_demand d, const scheduled_sequence& s, const relative& its) {
  const auto rows = d.rows;
  budget_.demand(s.running() ? s.planned : s.known() - rows, rows + d.branches, !s.running() || !s.decodes());
  if (s.running() && s.samples_in_flight == 0)
    d.guesses = std::max(s.planned + rows - s.known(), 0);
  if (!s.running()) {
    const bool last = its.of && its.alike == s.known() - 1;                  // the last row is all that it lacks
    const auto end = s.scoring() ? rows : rules_.wanted(s) + (last ? 1 : 0); // of the rows that it may have now
    if (its.of) {
      d.like = its.of->id;
      d.alike = its.alike;
    }
    d.open = end == s.prompt_tokens()
      ? prompt_of(s)
      : std::make_shared<const std::vector<token_id>>(s.tokens.begin(), s.tokens.begin() + end);
    d.salt = chain_root(s.salt(), rules_.rotation_of(s.known()));
    d.from = s.whole ? 0 : s.scored; // the rows of tokens to be scored must be computed
    d.whole = s.whole;
    if (s.moves_to >= 0)
      d.destination = std::make_shared<const block_destination>(block_destination{
        s.id.request, s.moves_to,
        s.known() == s.prompt_tokens() ? prompt_of(s) : std::make_shared<const std::vector<token_id>>(s.tokens),
        d.salt});
    d.reserve = only_its_group_runs(s) ? 0 : blocks_until_first_end() + blocks_of_new_;
    if (s.losses > 0)
      blocks_of_new_ += blocks_for(s.known()) - blocks_for(rows);
  }
  draft_.demand(std::move(d), s.scoring() ? std::max(s.planned + rows - std::max(s.planned, s.scored), 0) : 0);
}

// Who has most of its tokens, of those of its group that run or are to start now. Nobody: less than a block of them, or a
// state that would have to be taken back. Compares all their tokens: once for each that waits, in a step.
row_demands::relative row_demands::relative_of(const scheduled_sequence& s) const {
  relative found;
  if (!s.grouped() || s.whole || s.scoring() || rules_.recurrent())
    return found;
  for (const auto id : table_.group_of(s).members) {
    const auto& other = table_.at(id);
    if (id == s.id || !(other.running() || draft_.demanded(id)) ||
        rules_.rotation_of(other.known()) != rules_.rotation_of(s.known()))
      continue;
    const auto its = std::ranges::mismatch(s.tokens, other.tokens).in1 - s.tokens.begin();
    if (const auto alike = std::min({static_cast<std::int32_t>(its), s.known() - 1, other.known() - 1});
        alike > found.alike)
      found = {&other, alike};
  }
  return found.alike >= kernels::block_tokens ? found : relative{};
}

// When a group comes back, each member has the blocks of those before it, as it had when it was forked: else the group
// would need more of them than when it started, and perhaps more than there are. What is computed in this step is copied
// in the next one only.
bool row_demands::is_ready(const relative& its) const {
  return !its.of || (its.of->planned >= its.alike && !draft_.granted(its.of->id));
}

bool row_demands::only_its_group_runs(const scheduled_sequence& s) const {
  return !table_.idle() && std::ranges::all_of(table_.running(), [&](const scheduled_sequence& other) {
    return other.id.request == s.id.request;
  });
}

// So that a new sequence is not preempted again at once: a quarter of what those that run will take until the one that is
// expected to end first has ended, and at least a block for each. All of it would leave blocks idle, and first tokens
// waiting (tests/runtime/scheduling/length_placement_test.cpp).
std::int32_t row_demands::blocks_until_first_end() const {
  auto first = std::numeric_limits<double>::infinity();
  for (const auto& s : table_.running())
    if (s.expected && s.expected->learned && !s.gives_way())
      first = std::min(first, s.left());
  const auto running = table_.running_count();
  const auto blocks = std::isfinite(first) ? std::ceil(running * first / (4 * kernels::block_tokens)) : 0;
  return std::max(running, static_cast<std::int32_t>(std::min(blocks, 1e6))) + blocks_of_prompts();
}

// Those that prompts under way lack, if they have lost their blocks before. Two that have no room beside each other would
// else take blocks from each other for ever, and neither would be computed.
std::int32_t row_demands::blocks_of_prompts() const {
  std::int32_t blocks = 0;
  for (const auto& s : table_.running())
    if (s.losses > 0 && !s.decodes() && !s.gives_way())
      blocks += blocks_for(s.known()) - blocks_for(s.planned);
  return blocks;
}

void row_demands::of_group(const sequence_group& g) {
  for (const auto id : g.members) {
    of(table_.at(id), 1);
    draft_.mark_last_row(id);
  }
}

// Those that have no rows in a step give way, so the oldest group gets the blocks of all others if it demands alone.
bool row_demands::of_urgent_group() {
  if (table_.idle())
    return false;
  const auto& oldest = *table_.running().begin();
  if (!oldest.grouped() || draft_.demanded(oldest.id))
    return false;
  const auto& g = table_.group_of(oldest);
  const bool first = g.urgent() && g.members.size() > 1 && rules_.ready(g) && rules_.wanted(oldest) > 0 &&
    draft_.rows_left() >= std::ssize(g.members);
  if (first)
    of_group(g);
  return first;
}

void row_demands::of_decoding() {
  auto left = draft_.rows_left();
  for (auto& s : table_.running()) {
    if (left <= 0)
      return;
    const auto wanted = rules_.wanted(s);
    if (wanted <= 0 || !s.decodes() || draft_.demanded(s.id))
      continue;
    if (const auto* g = s.grouped() ? &table_.group_of(s) : nullptr; g && g->members.size() > 1) {
      if (left < std::ssize(g->members))
        continue;
      of_group(*g);
      left -= static_cast<std::int32_t>(g->members.size());
      continue;
    }
    const auto& guesses = guesses_.of(s.id);
    if (const auto all = wanted + static_cast<std::int32_t>(guesses.tokens.size());
        !guesses.parents.empty() && all <= left) {
      of_tree(s, wanted, guesses);
      left -= all;
      continue;
    }
    const auto rows = std::min(wanted + first_line(guesses), left);
    of(s, rows);
    left -= rows;
  }
}

void row_demands::of_prompts(row_shares& shares) {
  auto left = draft_.rows_left();
  for (auto& s : table_.running()) {
    if (s.decodes() || draft_.demanded(s.id))
      continue;
    const auto rows = fitting(s, std::min({rules_.wanted(s), left, shares.left(s.asked->client)}));
    if (rows > 0) {
      of(s, rows);
      shares.take(s.asked->client, rows);
      left -= rows;
    }
  }
}

void row_demands::of_waiting(row_shares& shares) {
  auto left = draft_.rows_left();
  if (left <= 0 || draft_.starved() || table_.waiting().empty())
    return;
  for (const auto id : table_.with_reserved_slots()) {
    const auto& s = table_.at(id);
    if (!rules_.admissible(s) || draft_.demanded(id))
      continue;
    const auto its = relative_of(s);
    if (!is_ready(its))
      continue;
    const auto rows = fitting(s, std::min({rules_.wanted(s), left, shares.left(s.asked->client)}));
    if (rows <= 0)
      continue;
    shares.take(s.asked->client, rows);
    of(s, rows, its);
    left -= rows;
  }
  fair_queue::turns turns(table_.waiting(), shares_.held());
  while (const auto id = turns.next()) {
    const auto& s = table_.at(*id);
    if (!rules_.admissible(s) || draft_.demanded(s.id) || has_reserved_slot(s))
      continue;
    const auto its = relative_of(s);
    if (!is_ready(its))
      continue;
    const auto slots = s.grouped() && draft_.has_promise(s.id.request) ? 0 : table_.slots_needed(s);
    if (left <= 0 || slots_left() < slots)
      return;
    if (slots > 0 && has_its_share(turns, s)) {
      turns.pass();
      continue;
    }
    if (s.whole) { // beside others, as far as the step has room
      const auto rows = rules_.wanted(s);
      const bool alone = draft_.demands().empty();
      if (rows > left || (!alone && budget_.room(cost_, 0, rows) < rows))
        return;
      draft_.promise_slots(s.id, slots);
      turns.take(slots);
      of(s, rows);
      left -= rows;
      continue;
    }
    const auto share = shares.left(s.asked->client);
    if (share == 0)
      continue;
    const auto rows = fitting(s, std::min({rules_.wanted(s), left, share}));
    if (rows <= 0)
      return;
    draft_.promise_slots(s.id, slots);
    turns.take(slots);
    shares.take(s.asked->client, rows);
    of(s, rows, its);
    left -= rows;
  }
}

// Among the clients with prompts of the highest priority that are under way or could start now.
row_shares row_demands::divide_rows() {
  row_shares shares;
  const auto left = draft_.rows_left();
  if (left <= 0)
    return shares;
  std::vector<const scheduled_sequence*> prompts;
  for (auto& s : table_.running())
    if (!s.decodes() && !draft_.demanded(s.id) && rules_.wanted(s) > 0)
      prompts.push_back(&s);
  for (const auto id : table_.with_reserved_slots())
    if (const auto& s = table_.at(id); rules_.admissible(s) && !draft_.demanded(id) && !draft_.starved())
      prompts.push_back(&s);
  auto slots = slots_left();
  if (!table_.waiting().empty() && slots > 0 && !draft_.starved()) {
    fair_queue::turns turns(table_.waiting(), shares_.held());
    std::set<std::uint64_t> groups; // that have their slots by now
    for (auto id = turns.next(); id && slots > 0; id = turns.next()) {
      const auto& s = table_.at(*id);
      if (!rules_.admissible(s) || draft_.demanded(s.id) || has_reserved_slot(s))
        continue;
      const auto wanted = s.grouped() && !groups.insert(id->request).second ? 0 : table_.slots_needed(s);
      if (wanted > 0 && has_its_share(turns, s)) {
        turns.pass();
        continue;
      }
      slots -= wanted;
      turns.take(wanted);
      prompts.push_back(&s);
    }
  }
  auto top = std::numeric_limits<int>::min();
  for (const auto* s : prompts)
    top = std::max(top, s->priority);
  for (const auto* s : prompts)
    if (s->priority == top)
      shares.want(s->asked->client, std::min(rules_.wanted(*s), left));
  for (const auto& [client, rows] : draft_.prompt_rows())
    shares.had(client, rows);
  shares.divide(budget_.room(cost_, 0, left), kernels::block_tokens, turns_, clients_beside(shares, top));
  return shares;
}

// Those who decode and have no prompts, of that priority at least.
std::int32_t row_demands::clients_beside(const row_shares& shares, int priority) const {
  std::set<std::string_view> clients;
  for (const auto& s : table_.running())
    if (s.decodes() && s.priority >= priority && !s.paused() && !shares.wants(s.asked->client))
      clients.insert(s.asked->client);
  return static_cast<std::int32_t>(clients.size());
}

// Not of slots that others could have, but of the time that their tokens take.
bool row_demands::has_its_share(const fair_queue::turns& turns, const scheduled_sequence& s) const {
  return turns.held() > 0 && turns.held() >= shares_.most_for(s, budget_.rows(cost_));
}

// Rows of a prompt that the step has room for. How much of a waiting prompt is cached is not known yet: its rows may be
// the last ones. Rows whose logits are all wanted are limited.
std::int32_t row_demands::fitting(const scheduled_sequence& s, std::int32_t rows) const {
  if (s.scoring())
    rows = std::min(rows, std::max(s.planned, s.scored) + draft_.extra_logits() - s.planned);
  return budget_.room(cost_, s.running() ? s.planned : s.known() - rows, rows);
}

} // namespace troupe
