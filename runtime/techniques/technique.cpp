#include "runtime/techniques/technique.hpp"

#include "runtime/support/text/visible_text.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <algorithm>
#include <charconv>

namespace troupe {

std::string text_of(const flag_values& flags, std::string_view name) {
  const auto found = flags.find(name);
  return found == flags.end() || found->second.empty() ? std::string() : found->second.back();
}

float number_of(const flag_values& flags, std::string_view name, float otherwise) {
  const auto text = text_of(flags, name);
  std::from_chars(text.data(), text.data() + text.size(), otherwise);
  return otherwise;
}

std::span<const std::string> texts_of(const flag_values& flags, std::string_view name) {
  const auto found = flags.find(name);
  return found == flags.end() ? std::span<const std::string>() : found->second;
}

std::pair<std::string, std::string> parse_named_file(std::string_view text) {
  const auto sign = text.find('=');
  if (sign == 0 || sign == text.npos || sign + 1 == text.size())
    throw failure(errc::bad_request, "must be NAME=FILE, not " + visible_name(text));
  return {std::string(text.substr(0, sign)), std::string(text.substr(sign + 1))};
}

void technique_values::set(const technique& of, std::shared_ptr<const void> value) {
  if (value)
    all_[&of] = std::move(value);
  else
    all_.erase(&of);
}

void technique_values::merge(const technique_values& others) {
  for (const auto& [of, value] : others.all_)
    all_[of] = value;
}

const answer_judge* judge_of(const flag_values& flags) {
  for (const auto* each : repertoire())
    if (each->judge && !text_of(flags, each->judge->flag).empty())
      return each->judge;
  return nullptr;
}

const answer_constraints* constraints() {
  const auto all = repertoire();
  const auto found = std::ranges::find_if(all, [](const auto* each) { return each->constrain != nullptr; });
  return found == all.end() ? nullptr : (*found)->constrain;
}

std::string names_of_judges() {
  std::string names;
  for (const auto* each : repertoire())
    if (each->judge)
      names += (names.empty() ? "" : " or ") + std::string(each->judge->name);
  return names.empty() ? "judge" : names;
}

} // namespace troupe
