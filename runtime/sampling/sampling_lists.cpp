#include "runtime/sampling/sampling_lists.hpp"

#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <string>

namespace troupe {

void expect_at_most(const char* field, std::size_t found, std::size_t most) {
  if (found > most)
    refuse_field(field, "may have at most " + std::to_string(most) + " entries, not " + std::to_string(found));
}

namespace {

using sampling_fields::bias;

std::vector<token_id> checked(std::vector<token_id> ids) {
  expect_at_most("stop_token_ids", ids.size(), sampling_fields::most_stop_ids);
  std::ranges::sort(ids);
  const auto same = std::ranges::unique(ids);
  ids.erase(same.begin(), same.end());
  if (!ids.empty() && ids.front() < 0)
    refuse_field("stop_token_ids", "must consist of token ids, and " + std::to_string(ids.front()) + " is not one");
  return ids;
}

std::vector<logit_bias_map::entry> checked(std::vector<logit_bias_map::entry> entries) {
  using entry = logit_bias_map::entry;
  expect_at_most("logit_bias", entries.size(), sampling_fields::most_biases);
  std::ranges::sort(entries, {}, &entry::first);
  if (!entries.empty() && entries.front().first < 0)
    refuse_field("logit_bias", "must name token ids, " + std::to_string(entries.front().first) + " is not one");
  const auto twice = std::ranges::adjacent_find(entries, {}, &entry::first);
  if (twice != entries.end())
    refuse_field("logit_bias", "names token " + std::to_string(twice->first) + " more than once");
  // Written so that a NaN is refused.
  if (!std::ranges::all_of(entries, [](const entry& e) { return e.second >= bias.least && e.second <= bias.most; }))
    refuse_field("logit_bias",
                 "must map token ids to numbers between " + std::to_string(static_cast<int>(bias.least)) + " and " +
                   std::to_string(static_cast<int>(bias.most)));
  return entries;
}

} // namespace

stop_id_set::stop_id_set(std::vector<token_id> ids) : shared_list(checked(std::move(ids))) {}

bool stop_id_set::contains(token_id id) const { return std::binary_search(begin(), end(), id); }

logit_bias_map::logit_bias_map(std::vector<entry> entries) : shared_list(checked(std::move(entries))) {}

} // namespace troupe
