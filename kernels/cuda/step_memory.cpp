#include "kernels/cuda/step_memory.hpp"

#include <algorithm>

namespace troupe::kernels::cuda {

namespace {

bool same(const sequence_rows& a, const sequence_rows& b) {
  return a.first_row == b.first_row && a.rows == b.rows && a.first_position == b.first_position &&
         a.first_block == b.first_block;
}

bool same(const attention_options& a, const attention_options& b) {
  return a.group == b.group && a.window == b.window && a.flash == b.flash && a.share == b.share &&
         a.most_slots == b.most_slots;
}

} // namespace

void step_memory::enter(const stream& on, const batch& who) {
  if (std::ranges::equal(who.sequences, sequences_, [](auto& a, auto& b) { return same(a, b); }) &&
      std::ranges::equal(who.block_tables, block_tables_))
    return;
  sequences_.assign(who.sequences.begin(), who.sequences.end());
  block_tables_.assign(who.block_tables.begin(), who.block_tables.end());
  planned_ = 0;
  std::vector<row_place> places;
  for (const auto& s : sequences_)
    for (int i = 0; i < s.rows; ++i)
      places.push_back({s.first_position + i, s.first_block});
  row_count_ = places.size();
  places_ = places_memory_.upload(on, places.data(), places.size());
  tables_ = tables_memory_.upload(on, block_tables_.data(), block_tables_.size());
}

const planned_attention& step_memory::attention(const stream& on, const attention_options& options) {
  for (std::size_t i = 0; i < planned_; ++i)
    if (same(plans_[i]->options, options))
      return *plans_[i];
  if (plans_.size() == planned_)
    plans_.push_back(std::make_unique<planned_attention>());
  auto& to = *plans_[planned_];
  to.options = options;
  to.plan = plan_attention({sequences_, block_tables_}, options);
  to.rows = to.rows_memory.upload(on, to.plan.rows.data(), to.plan.rows.size());
  to.list = to.list_memory.upload(on, to.plan.list.data(), to.plan.list.size());
  auto works = to.plan.small;
  works.insert(works.end(), to.plan.large.begin(), to.plan.large.end());
  works.insert(works.end(), to.plan.flash.begin(), to.plan.flash.end());
  to.small = to.work_memory.upload(on, works.data(), works.size());
  to.large = to.small + to.plan.small.size();
  to.flash = to.large + to.plan.large.size();
  ++planned_;
  return to;
}

} // namespace troupe::kernels::cuda
