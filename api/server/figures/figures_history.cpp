#include "api/server/figures/figures_history.hpp"

#include "runtime/support/json/json_object.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace troupe {

namespace {

double seconds_of(std::chrono::system_clock::time_point at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}

/// What api/page/figures.js draws over time. Names are few: without labels, or with a bucket's edge.
constexpr auto kept = std::to_array<std::string_view>({
  "troupe_generated_tokens_total",
  "troupe_prompt_tokens_total",
  "troupe_kv_blocks",
  "troupe_kv_blocks_in_use",
  "troupe_kv_blocks_cached",
  "troupe_sequences_running",
  "troupe_sequences_waiting",
  "troupe_sequences_paused",
  "troupe_time_to_first_token_seconds_bucket",
  "troupe_inter_token_seconds_bucket",
  "troupe_queue_seconds_bucket",
});
constexpr std::size_t most_names = 256;

/// A name with its labels, except this one: `label` is `model="`.
std::string without_label(std::string plain, std::string_view label) {
  const auto at = plain.find(label);
  if (at == plain.npos)
    return plain;
  auto end = at + label.size();
  while (end < plain.size() && plain[end] != '"')
    end += plain[end] == '\\' ? 2 : 1;
  if (end >= plain.size())
    return plain;
  end += end + 1 < plain.size() && plain[end + 1] == ',' ? 2 : 1;
  plain.erase(at, end - at);
  if (plain.ends_with(",}"))
    plain.erase(plain.size() - 2, 1);
  if (plain.ends_with("{}"))
    plain.resize(plain.size() - 2);
  return plain;
}

/// Adds up a metric over all models and replicas.
std::string of_all(std::string_view name) {
  return without_label(without_label(std::string(name), "model=\""), "replica=\"");
}

} // namespace

std::size_t figures_history::place_of(std::string_view name) {
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end() && names_.size() < most_names)
    return names_.emplace_back(name), names_.size() - 1;
  return static_cast<std::size_t>(found - names_.begin());
}

void figures_history::add(std::string_view exposition, std::chrono::system_clock::time_point at) {
  constexpr auto absent = std::numeric_limits<double>::quiet_NaN();
  const std::lock_guard lock(mutex_);
  sample made{seconds_of(at), {}};
  while (!exposition.empty()) {
    const auto line = exposition.substr(0, exposition.find('\n'));
    exposition.remove_prefix(std::min(exposition.size(), line.size() + 1));
    const auto space = line.rfind(' ');
    if (line.starts_with('#') || space == line.npos ||
        std::ranges::find(kept, line.substr(0, line.find_first_of("{ "))) == kept.end())
      continue;
    double value = 0;
    const auto number = line.substr(space + 1);
    if (std::from_chars(number.data(), number.data() + number.size(), value).ec != std::errc())
      continue;
    const auto place = place_of(of_all(line.substr(0, space)));
    if (place >= names_.size())
      continue;
    if (place >= made.values.size())
      made.values.resize(place + 1, absent);
    auto& sum = made.values[place];
    sum = std::isnan(sum) ? value : sum + value;
  }
  if (made.values.empty())
    return; // nothing to draw
  samples_.push_back(std::move(made));
  while (samples_.size() > most_)
    samples_.pop_front();
}

std::string figures_history::json(std::chrono::system_clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names, samples;
  for (const auto& name : names_)
    names.push_back(json_text(name));
  for (const auto& one : samples_) {
    std::vector<std::string> row{json_number(one.at)};
    for (const auto value : one.values)
      row.push_back(std::isnan(value) ? "null" : json_number(value));
    samples.push_back(json_list(row));
  }
  return json_object().number("now", seconds_of(now)).list("names", names).list("samples", samples).str();
}

} // namespace troupe
