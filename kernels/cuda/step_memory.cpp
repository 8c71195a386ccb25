#include "kernels/cuda/step_memory.hpp"

#include "kernels/cuda/state_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace troupe::kernels::cuda {

namespace {

bool same(const sequence_rows& a, const sequence_rows& b) {
  return a.first_row == b.first_row && a.rows == b.rows && a.first_position == b.first_position &&
    a.first_block == b.first_block && a.length == b.length;
}

bool same(std::span<const std::int32_t> a, std::span<const std::int32_t> b) { return std::ranges::equal(a, b); }

std::vector<attention_work> works_of(const attention_plan& plan) {
  auto works = plan.small;
  works.insert(works.end(), plan.large.begin(), plan.large.end());
  works.insert(works.end(), plan.flash.begin(), plan.flash.end());
  works.insert(works.end(), plan.common.begin(), plan.common.end());
  return works;
}

/// Rounds up to one of four sizes per power of two, so that at most a quarter is unused.
std::size_t rounded(std::size_t n) {
  const std::size_t step = n < 8 ? 1 : std::bit_floor(n) / 4;
  return (n + step - 1) / step * step;
}

/// Adds empty works and unused slots, so that plans of similar size make the same launches with the same memory for
/// states.
void pad(attention_plan& plan, std::size_t most_slots) {
  if (plan.slabs.size() != 1)
    return;
  plan.small.resize(rounded(plan.small.size()));
  plan.large.resize(rounded(plan.large.size()));
  plan.common.resize(rounded(plan.common.size()));
  plan.slots = std::max(plan.slots, std::min(rounded(plan.slots), most_slots));
  plan.slabs.front().small = plan.small.size();
  plan.slabs.front().large = plan.large.size();
  plan.slabs.front().common = plan.common.size();
}

void point_works(planned_attention& to, const attention_work* first) {
  to.small = first;
  to.large = to.small + to.plan.small.size();
  to.flash = to.large + to.plan.large.size();
  to.common = to.flash + to.plan.flash.size();
}

} // namespace

// -- staged ahead -----------------------------------------------------------------------------------------------------

template <class T>
const T* step_memory::image::add(device_scratch& to, const std::vector<T>& values, bool tokens) {
  static_assert(sizeof(T) % sizeof(std::uint32_t) == 0);
  const auto count = values.size() * sizeof(T) / sizeof(std::uint32_t);
  if (count == 0)
    return nullptr;
  auto* at = to.reserve<std::uint32_t>(count * sizeof(std::uint32_t));
  const auto first = words.size();
  words.resize(first + count);
  std::memcpy(words.data() + first, values.data(), count * sizeof(std::uint32_t));
  for (std::size_t i = 0; i < count; i += most_chunk_words)
    chunks.push_back({at + i, static_cast<std::uint32_t>(first + i),
                      static_cast<std::uint32_t>(std::min<std::size_t>(most_chunk_words, count - i)), tokens, 0});
  return reinterpret_cast<const T*>(at);
}

void step_memory::stage(const stream& aside, const stream& current, const step_inputs& inputs) {
  std::vector<attention_options> wanted; // by the previous step
  for (std::size_t i = 0; i < planned_; ++i)
    wanted.push_back(plans_[i]->options);
  const bool attends = !wanted.empty() || current_ == nullptr; // or no step before shows that the model does not
  set_batch(inputs.rows);
  image all;
  staged_tokens_.assign(inputs.tokens.begin(), inputs.tokens.end());
  tokens_ = all.add(tokens_memory_, staged_tokens_, true);
  for (auto& t : staged_tokens_)
    t = std::max(t, 0);
  staged_gathered_.assign(inputs.logit_rows.begin(), inputs.logit_rows.end());
  gathered_ = all.add(gathered_memory_, staged_gathered_);
  places_ = all.add(places_memory_, host_places_);
  tables_ = all.add(tables_memory_, block_tables_);
  if (const auto* recurrent = inputs.rows.recurrent) {
    const auto& states = *recurrent->states;
    const auto count = std::max(sequences_.size(), states.runs().size()); // with padding rows
    set_runs(states, all.add(runs_memory_, words_of_runs(states, count)), count);
  }
  for (const auto& options : wanted) {
    auto& to = plan(options);
    if (inputs.repeatable)
      pad(to.plan, options.most_slots);
    to.rows = all.add(to.rows_memory, to.plan.rows);
    to.list = all.add(to.list_memory, to.plan.list);
    point_works(to, all.add(to.work_memory, works_of(to.plan)));
  }
  upload(aside, current, all);
  staged_ = true;
  repeatable_ = inputs.repeatable && (!wanted.empty() || !attends);
}

void step_memory::upload(const stream& aside, const stream& current, const image& all) {
  current_ = &stagings_[next_staging_++ % stagings_.size()];
  const auto header = all.chunks.size() * sizeof(unpack_chunk), data = all.words.size() * sizeof(std::uint32_t);
  if (!current_->uploaded.happened())
    current_->uploaded.synchronise(); // only if more steps are in flight than there are stagings
  if (current_->host_bytes < header + data) {
    current_->host_bytes = device_scratch::reserved(header + data);
    current_->host = allocate_pinned(current_->host_bytes);
  }
  auto* to = static_cast<char*>(current_->host.get());
  std::memcpy(to, all.chunks.data(), header);
  std::memcpy(to + header, all.words.data(), data);
  wait_for(aside, current_->unpacked);
  copy_to_device(aside, current_->device.reserve(header + data), to, header + data);
  current_->uploaded.record(aside);
  wait_for(current, current_->uploaded);
  current_->chunks = all.chunks.size();
}

void step_memory::begin(const stream& on, const std::int32_t* slot_tokens) {
  unpack(on, current_->device.reserve(0), current_->chunks, slot_tokens);
  current_->unpacked.record(on);
}

std::vector<std::uint64_t> step_memory::launch_shape() const {
  if (!staged_ || !repeatable_)
    return {};
  std::vector<std::uint64_t> shape{row_count_, staged_gathered_.size(), runs_.count};
  for (std::size_t i = 0; i < planned_; ++i) {
    const auto& plan = plans_[i]->plan;
    const auto& options = plans_[i]->options;
    if (plan.slabs.size() != 1 || !plan.flash.empty() || options.most > 0 || options.seen.most > 0)
      return {}; // scores grow with the context
    shape.push_back(plan.small.size());
    shape.push_back(plan.large.size());
    shape.push_back(plan.common.size());
    shape.push_back(plan.slots);
  }
  return shape;
}

std::uint64_t step_memory::growths() const {
  auto all = places_memory_.growths() + tables_memory_.growths() + tokens_memory_.growths() +
    gathered_memory_.growths() + runs_memory_.growths();
  for (const auto& p : plans_)
    all += p->rows_memory.growths() + p->list_memory.growths() + p->work_memory.growths();
  return all;
}

void step_memory::set_runs(const state_cache& of, const std::uint32_t* words, std::size_t count) {
  runs_ = {reinterpret_cast<const state_run*>(words), count};
  runs_step_ = of.step();
}

// -- when first seen --------------------------------------------------------------------------------------------------

void step_memory::set_batch(const batch& rows) {
  sequences_.assign(rows.sequences.begin(), rows.sequences.end());
  block_tables_.assign(rows.block_tables.begin(), rows.block_tables.end());
  planned_ = 0;
  staged_ = false;
  host_places_.clear();
  for (const auto& s : sequences_)
    for (int i = 0; i < s.rows; ++i)
      host_places_.push_back({s.first_position + i, s.first_block, s.length});
  row_count_ = host_places_.size();
}

void step_memory::enter(const stream& on, const batch& rows) {
  if (std::ranges::equal(rows.sequences, sequences_, [](auto& a, auto& b) { return same(a, b); }) &&
      same(rows.block_tables, block_tables_))
    return;
  set_batch(rows);
  places_ = places_memory_.upload(on, host_places_.data(), host_places_.size());
  tables_ = tables_memory_.upload(on, block_tables_.data(), block_tables_.size());
}

const std::int32_t* step_memory::tokens(const stream& on, const std::int32_t* ids, std::size_t count) {
  if (staged_ && tokens_ != nullptr && same({ids, count}, staged_tokens_))
    return tokens_;
  tokens_ = nullptr; // the upload takes the place of what was staged
  return tokens_memory_.upload(on, ids, count);
}

const std::int32_t* step_memory::gathered(const stream& on, const std::int32_t* rows, std::size_t count) {
  if (staged_ && gathered_ != nullptr && same({rows, count}, staged_gathered_))
    return gathered_;
  gathered_ = nullptr;
  return gathered_memory_.upload(on, rows, count);
}

state_runs step_memory::states(const stream& on, const state_cache& of) {
  if (runs_step_ != of.step()) {
    const auto count = of.runs().size();
    const auto words = words_of_runs(of, count);
    set_runs(of, runs_memory_.upload(on, words.data(), words.size()), count);
  }
  return runs_;
}

planned_attention& step_memory::plan(const attention_options& options) {
  if (plans_.size() == planned_)
    plans_.push_back(std::make_unique<planned_attention>());
  auto& to = *plans_[planned_++];
  to.options = options;
  to.plan = plan_attention({sequences_, block_tables_}, options);
  return to;
}

const planned_attention& step_memory::attention(const stream& on, const attention_options& options) {
  for (std::size_t i = 0; i < planned_; ++i)
    if (plans_[i]->options == options)
      return *plans_[i];
  auto& to = plan(options);
  to.rows = to.rows_memory.upload(on, to.plan.rows.data(), to.plan.rows.size());
  to.list = to.list_memory.upload(on, to.plan.list.data(), to.plan.list.size());
  const auto works = works_of(to.plan);
  point_works(to, to.work_memory.upload(on, works.data(), works.size()));
  repeatable_ = false;
  return to;
}

} // namespace troupe::kernels::cuda
