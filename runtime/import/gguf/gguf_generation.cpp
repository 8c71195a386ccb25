// What a GGUF file says about generating: the ends of answers, and the defaults of sampling that llama.cpp's converter
// takes from generation_config.json.
#include "runtime/import/answer_ends.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/model/default_sampling.hpp"
#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <sstream>

namespace troupe {

namespace {

constexpr std::string_view tokens_key = "tokenizer.ggml.tokens", types_key = "tokenizer.ggml.token_type",
                           list_key = "tokenizer.ggml.eos_token_ids"; // Ollama's, of all ends

std::vector<token_id> read_ends(const gguf_metadata& metadata) {
  std::vector<token_id> ends;
  const auto add = [&](std::int64_t id) {
    if (id >= 0 && id <= std::numeric_limits<token_id>::max()) // files spell "none" as the highest u32
      ends.push_back(static_cast<token_id>(id));
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    add(metadata.integer(key, 0, std::numeric_limits<std::uint32_t>::max()).value_or(-1));
  if (const auto list = metadata.find(list_key); list && list->type == gguf_type::array)
    for (const auto id : metadata.integers(list_key).value_or(std::vector<std::int32_t>{}))
      add(id);
  const auto tokens = metadata.strings(tokens_key).value_or(std::vector<std::string_view>{});
  const auto types = metadata.integers(types_key).value_or(std::vector<std::int32_t>{});
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool control = i < types.size() && types[i] == static_cast<std::int32_t>(gguf_token_kind::control);
    if (is_end_by_name(tokens[i]) || (control && is_end_by_name_of_control(tokens[i])))
      ends.push_back(static_cast<token_id>(i));
  }
  return without_message_ends(std::move(ends), [&](std::string_view text) {
    const auto found = std::ranges::find(tokens, text);
    return found == tokens.end() ? std::nullopt : std::optional(static_cast<token_id>(found - tokens.begin()));
  });
}

/// GGUF's names that differ from those of the table of sampling.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> other_names{
  {{"temperature", "temp"}, {"repetition_penalty", "penalty_repeat"}}};

/// Fields that mean the same in llama.cpp and here.
constexpr std::array<std::string_view, 7> shared_fields{
  "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "xtc_probability", "xtc_threshold"};

} // namespace

std::optional<std::string> gguf_sampling_key(std::string_view field) {
  if (std::ranges::find(shared_fields, field) == shared_fields.end())
    return std::nullopt;
  for (const auto& [own, gguf] : other_names)
    if (own == field)
      field = gguf;
  return "general.sampling." + std::string(field);
}

generation_defaults parse_gguf_generation(const gguf_file& file) {
  const auto& metadata = file.metadata();
  generation_defaults result;
  result.stops = read_ends(metadata);
  sampling_fields::for_each([&]<class T>(const sampling_field<T>& field) {
    const auto key = gguf_sampling_key(field.name);
    const auto given = key
      ? metadata.number(*key, std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max())
      : std::nullopt;
    if (!given)
      return;
    if (decides_draws(field.name))
      result.sampling_source = "general.sampling.* of the GGUF file";
    const auto taken = std::clamp(*given, static_cast<double>(field.least), static_cast<double>(field.most));
    if (taken != *given) {
      classic<std::ostringstream> line;
      line << metadata.label(*key) << " is " << *given << ", taken as " << taken << ": it must be from " << field.least
           << " to " << field.most;
      result.remarks.push_back(line.str());
    }
    result.sampling.*field.member = static_cast<T>(taken);
  });
  // Tokens that llama.cpp looks back at: -1 is all of them, 0 is none.
  constexpr auto span_key = "general.sampling.penalty_last_n";
  if (const auto span = metadata.integer(span_key, -1, std::numeric_limits<std::int32_t>::max())) {
    if (*span == 0)
      result.sampling.repetition_penalty = 1;
    else
      result.sampling.repetition_penalty_range = *span < 0 ? 0 : static_cast<int>(*span);
  }
  return result;
}

} // namespace troupe
