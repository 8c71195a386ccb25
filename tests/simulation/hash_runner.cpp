#include "tests/simulation/hash_runner.hpp"

#include "tests/simulation/dice.hpp"
#include "tests/simulation/hash_model.hpp"
#include "tests/simulation/variants.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace troupe::simulation {

namespace {

constexpr auto block_tokens = kernels::block_tokens;

void expect(bool holds, const std::string& what) {
  if (!holds)
    throw broken_promise("a plan " + what);
}

/// What a row is made from beside its context.
std::uint64_t input_of(token_id token, std::int32_t position, std::uint64_t salt) {
  return mixed(mixed(static_cast<std::uint64_t>(token) + 1, static_cast<std::uint64_t>(position)), salt);
}

} // namespace

hash_states::hash_states(int running, int snapshots, int pending)
  : state_cache({.layers = 1, .slots = running + snapshots, .running = running, .pending = pending}),
    values_(static_cast<std::size_t>(running + snapshots)),
    log_(values_.size()) {}

std::vector<std::uint64_t> hash_states::run(const step_plan& plan, const std::vector<token_id>& tokens,
                                            const std::vector<std::uint64_t>& salts) {
  try {
    begin(plan.sequences, plan.states, plan.saves);
  } catch (const std::invalid_argument& e) { // a real executor would die of it, and all would be computed again
    throw broken_promise(std::string("a plan has rows where no state is: ") + e.what());
  }
  std::map<std::int32_t, std::span<const token_id>> first; // by slot; a prompt of one token may come twice
  std::vector<std::uint64_t> row_salts(tokens.size());
  for (std::size_t i = 0; i < salts.size(); ++i)
    std::fill_n(row_salts.begin() + plan.sequences[i].first_row, plan.sequences[i].rows, salts[i]);
  std::vector<std::uint64_t> rows(tokens.size());
  for (const auto& r : runs()) {
    const auto slot = static_cast<std::size_t>(r.slot);
    const std::span own(tokens.begin() + r.first_row, static_cast<std::size_t>(r.rows));
    const auto [before, is_first] = first.try_emplace(r.slot, own);
    expect(is_first || !r.fresh || std::ranges::equal(before->second, own), "has two sequences in one state");
    auto value = r.fresh ? 1 : values_[slot];
    auto kept = value;
    for (std::size_t i = 0; i < log_[slot].size(); ++i)
      if (r.replayed >> i & 1)
        value = mixed(value, log_[slot][i]);
    if (!r.branch) {
      kept = value;
      log_[slot].clear();
    }
    for (std::int32_t i = 0; i < r.rows; ++i) {
      const auto row = static_cast<std::size_t>(r.first_row + i);
      const auto input = mixed(static_cast<std::uint64_t>(tokens[row]) + 1, row_salts[row]);
      rows[row] = value = mixed(value, input);
      if (i < r.rows - r.pending)
        kept = value;
      else
        log_[slot].push_back(input);
      for (const auto& save : r.saves)
        if (save.rows == i + 1)
          values_[static_cast<std::size_t>(save.slot)] = value;
    }
    values_[slot] = kept;
  }
  end();
  return rows;
}

void hash_states::copy(const kernels::state_copy& c) {
  copied({&c, 1});
  values_.at(static_cast<std::size_t>(c.to)) = values_.at(static_cast<std::size_t>(c.from));
}

hash_runner::hash_runner(const runner_spec& spec, const hash_device_settings& settings)
  : settings_(settings),
    image_offset_(spec.image_offset),
    cache_(static_cast<std::size_t>(spec.blocks) * block_tokens),
    host_(static_cast<std::size_t>(spec.host_blocks) * block_tokens),
    slot_tokens_(static_cast<std::size_t>(spec.sizes.sequences)) {
  if (settings.recurrent)
    states_ = std::make_unique<hash_states>(spec.sizes.sequences, spec.snapshots, 64);
  if (settings_.runners_alive)
    ++*settings_.runners_alive;
}

hash_runner::~hash_runner() {
  if (settings_.runners_alive)
    --*settings_.runners_alive;
}

std::uint64_t& hash_runner::at(std::vector<std::uint64_t>& of, std::int32_t block, std::int32_t offset) const {
  expect(block >= 0 && static_cast<std::size_t>(block) < of.size() / block_tokens,
         "names block " + std::to_string(block) + " of " + std::to_string(of.size() / block_tokens));
  return of[static_cast<std::size_t>(block) * block_tokens + static_cast<std::size_t>(offset)];
}

void hash_runner::receive(const step_tokens& tokens) {
  if (!tokens.sampled) {
    on_device_ = tokens.slots;
    ready_ = tokens.ready;
    return;
  }
  on_device_ = {};
  for (const auto& each : tokens.sampled->sampled)
    slot_tokens_.at(static_cast<std::size_t>(each.slot)) = each.token.id;
}

std::vector<token_id> hash_runner::tokens_of(const step_plan& plan) const {
  auto tokens = plan.tokens;
  for (auto& t : tokens) {
    if (t >= 0)
      continue;
    const auto slot = static_cast<std::size_t>(slot_of(t));
    expect(slot < slot_tokens_.size(), "has a placeholder of no slot");
    if (on_device_)
      ready_->synchronise();
    t = on_device_ ? on_device_.get()[slot] : slot_tokens_[slot];
  }
  return tokens;
}

void hash_runner::move(std::span<const block_move> moves) {
  using kind = block_move::kind;
  constexpr auto bytes = block_tokens * sizeof(std::uint64_t);
  for (const auto& m : moves) {
    const auto image = [&] { return m.image->bytes.subspan(image_offset_, bytes).data(); };
    switch (m.what) {
      case kind::copy: std::memcpy(&at(cache_, m.to), &at(cache_, m.from), bytes); break;
      case kind::swap_out: std::memcpy(&at(host_, m.to), &at(cache_, m.from), bytes); break;
      case kind::swap_in: std::memcpy(&at(cache_, m.to), &at(host_, m.from), bytes); break;
      case kind::save: std::memcpy(image(), &at(cache_, m.from), bytes); break;
      case kind::load: std::memcpy(&at(cache_, m.to), image(), bytes); break;
      case kind::copy_state:
        expect(states_ != nullptr, "copies a state, and there are none");
        states_->copy({m.from, m.to});
        break;
    }
  }
}

step_output hash_runner::run(const step_plan& plan, const stage_rows* before) {
  move(plan.moves);
  const auto tokens = before ? before->tokens : tokens_of(plan);
  std::vector<std::uint64_t> inputs(tokens.size()), rows(tokens.size());
  if (before)
    std::memcpy(inputs.data(), before->rows.get(), inputs.size() * sizeof(std::uint64_t));
  std::vector<std::uint64_t> salts(plan.sequences.size());
  for (const auto& f : plan.featured)
    salts.at(static_cast<std::size_t>(f.place)) = f.features ? made_from(*f.features) : 0;
  const auto states = states_ ? states_->run(plan, tokens, salts) : std::vector<std::uint64_t>();
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t> written; // the same may be, twice
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const auto& s = plan.sequences[i];
    const auto block_of = [&](std::int32_t position) {
      const auto place = static_cast<std::size_t>(s.first_block + position / block_tokens);
      expect(place < plan.block_tables.size(), "has a block table that is too short");
      return plan.block_tables[place];
    };
    for (const auto& c : plan.common) // of guesses that branch: their ancestors are written by now
      at(cache_, c.to, c.place) = at(cache_, c.from, c.place);
    std::uint64_t context = 7;
    for (std::int32_t p = 0; p < s.first_position; ++p)
      context = mixed(context, at(cache_, block_of(p), p % block_tokens));
    for (std::int32_t r = 0; r < s.rows; ++r) {
      const auto row = static_cast<std::size_t>(s.first_row + r);
      const auto p = s.first_position + r;
      expect(row < tokens.size() && tokens[row] >= 0 && tokens[row] < vocabulary, "has a row of no token");
      auto own = before ? inputs[row] : input_of(tokens[row], p, salts[i]);
      if (states_)
        own = mixed(own, states[row]);
      const auto value = at(cache_, block_of(p), p % block_tokens) = mixed(context, own);
      expect(written.try_emplace({block_of(p), p % block_tokens}, value).first->second == value,
             "writes two rows to one place");
      context = mixed(context, value);
      rows[row] = context;
    }
  }
  if (settings_.last)
    return conclude(plan, tokens, rows);
  const auto passed = std::make_shared<std::vector<float>>(rows.size() * 2 + 2);
  std::memcpy(passed->data(), rows.data(), rows.size() * sizeof(std::uint64_t));
  step_output output;
  output.passed = std::make_shared<const stage_rows>(
    stage_rows{.rows = std::shared_ptr<const float>(passed, passed->data()), .tokens = tokens});
  return output;
}

step_output hash_runner::conclude(const step_plan& plan, const std::vector<token_id>& tokens,
                                  const std::vector<std::uint64_t>& rows) const {
  const auto lent = std::make_shared<std::vector<float>>(plan.logit_rows.size() * vocabulary +
                                                         plan.hidden_rows.size() * hidden_width + 1);
  auto* at = lent->data();
  step_output output;
  output.logits = {lent, at};
  output.vocab = vocabulary;
  for (const auto row : plan.logit_rows) {
    const auto r = static_cast<std::size_t>(row);
    hash_logits(rows.at(r), tokens.at(r), {at, vocabulary});
    at += vocabulary;
  }
  if (!plan.hidden_rows.empty()) {
    output.hidden = {lent, at};
    output.width = hidden_width;
    for (const auto row : plan.hidden_rows) {
      hash_hidden(rows.at(static_cast<std::size_t>(row)), {at, hidden_width});
      at += hidden_width;
    }
  }
  return output;
}

} // namespace troupe::simulation
