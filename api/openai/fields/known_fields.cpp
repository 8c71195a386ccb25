#include "api/openai/fields/known_fields.hpp"

#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/nearest_name.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

struct known_field {
  std::string_view name;
  field_scope of = field_scope::both;
};

constexpr auto chat = field_scope::chat, completions = field_scope::completions;

/// Beside the table of sampling parameters and the options of techniques.
constexpr auto fields = std::to_array<known_field>({
  {"model"},
  {"prompt", completions},
  {"messages", chat},
  {"stream"},
  {"stream_options"},
  {"max_tokens"},
  {"max_completion_tokens", chat},
  {"logprobs"},
  {"top_logprobs", chat},
  {"prompt_logprobs"},
  {"echo"},
  {"suffix", completions},
  {"return_token_ids"},
  {"add_special_tokens"},
  {"skip_special_tokens"},
  {"priority"},
  {"timeout"},
  {"ttft_timeout"},
  {"prediction"},
  {"negative_prompt"},
  {"seed"},
  {"ignore_eos"},
  {"stop"},
  {"stop_token_ids"},
  {"best_of_rank"},
  {"samplers"},
  {"logit_bias"},
  {"bad_words"},
  {"allowed_token_ids"},
  {"dry_sequence_breakers"},
  {"tools", chat},
  {"tool_choice", chat},
  {"parallel_tool_calls", chat},
  {"include_reasoning", chat},
  {"chat_template_kwargs", chat},
  {"documents", chat},
  {"reasoning_effort", chat},
  {"thinking", chat},
  {"verbosity", chat},
  {"add_generation_prompt", chat},
  {"continue_final_message", chat},
  {"modalities"},
  // llama.cpp's names
  {"n_predict"},
  {"repeat_penalty"},
  {"repeat_last_n"},
  {"dry_penalty_last_n"},
  // unsupported, and refused by name where they ask for something
  {"function_call", chat},
  {"functions", chat},
  {"audio", chat},
  {"web_search_options", chat},
  {"chat_template", chat},
  {"logits_processors"},
  {"truncate_prompt_tokens"},
  {"include_stop_str_in_output"},
  {"kv_transfer_params"},
  {"cache_salt"},
  // without influence on an answer, here or anywhere
  {"user"},
  {"store"},
  {"metadata"},
  {"service_tier"},
  {"safety_identifier"},
  {"prompt_cache_key"},
  {"prompt_cache_retention"},
  {"client_metadata"}, // Codex
  {"request_id"},
  {"cache_prompt"},
  {"id_slot"},
  {"spaces_between_special_tokens"},
});

constexpr auto stream_options = std::to_array<std::string_view>(
  {"include_usage", "continuous_usage_stats", "include_obfuscation"});

bool is_of(const known_field& field, field_scope of) {
  return of == field_scope::both || field.of == field_scope::both || field.of == of;
}

std::vector<std::string_view> names_of(field_scope of) {
  std::vector<std::string_view> result;
  for (const auto& field : fields)
    if (is_of(field, of))
      result.push_back(field.name);
  sampling_fields::for_each([&](const auto& field) {
    if (field.sources.request)
      result.push_back(field.name);
  });
  const int places = (of != field_scope::chat ? technique_option::completion : 0) |
    (of != field_scope::completions ? technique_option::chat : 0);
  for (const auto* each : repertoire())
    for (const auto& option : each->options)
      if (option.in(places))
        result.push_back(option.name);
  return result;
}

constexpr std::size_t most_name_bytes = 64;

/// The notes of one request. Counts those beyond the limit.
class note_list {
public:
  explicit note_list(unknown_fields how) : how_(how) {}

  void add(const field_reader& of, std::span<const std::string_view> known) {
    for (auto [key, value] : json::object(of.body())) {
      const std::string_view name = key;
      if (!value.is_null() && std::ranges::find(known, name) == known.end()) // null says nothing
        more_ += !note_unknown(how_, of, name, known, notes_);
    }
  }

  std::vector<std::string> finish() {
    if (more_ > 0)
      notes_.push_back(std::to_string(more_) + " more fields are not known here");
    return std::move(notes_);
  }

private:
  unknown_fields how_;
  std::vector<std::string> notes_;
  std::size_t more_ = 0;
};

/// "; did you mean `temperature`?", or nothing.
std::string guess_for(std::string_view name, std::span<const std::string_view> known) {
  std::string_view best;
  std::size_t least = 3; // of longer names; of short ones everything is near
  for (const auto& one : known) {
    const bool near = name.size() <= most_name_bytes && name.size() > 3;
    const auto apart = near ? name_distance(name, one) : least;
    if (apart < least && apart * 3 <= one.size()) {
      least = apart;
      best = one;
    }
  }
  return best.empty() ? std::string() : "; did you mean `" + std::string(best) + "`?";
}

} // namespace

bool is_known_field(std::string_view name, field_scope of) {
  const auto names = names_of(of);
  return std::ranges::find(names, name) != names.end();
}

bool note_unknown(unknown_fields how, const field_reader& of, std::string_view name,
                  std::span<const std::string_view> known, std::vector<std::string>& notes) {
  if (how == unknown_fields::ignore)
    return true;
  const auto path = of.path(to_utf8(name.substr(0, most_name_bytes)));
  const auto guess = guess_for(name, known);
  if (how == unknown_fields::reject)
    refuse_field(path, "is not known here" + guess);
  if (notes.size() >= most_notes)
    return false;
  notes.push_back('`' + path + "` is not known here and has no effect" + guess);
  return true;
}

std::vector<std::string> notes_on_fields(const field_reader& body, unknown_fields how, field_scope of,
                                         std::span<const std::string_view> envelope) {
  note_list notes(how);
  auto known = names_of(of);
  known.insert(known.end(), envelope.begin(), envelope.end());
  notes.add(body, known);
  if (const auto options = body.find("stream_options"); options && options->is_object())
    notes.add(field_reader(*options, "stream_options"), stream_options);
  return notes.finish();
}

std::vector<std::string> notes_on_members(const field_reader& body, unknown_fields how,
                                          std::span<const std::string_view> known) {
  note_list notes(how);
  notes.add(body, known);
  return notes.finish();
}

std::string header_of_notes(const std::vector<std::string>& notes) {
  constexpr std::size_t most_bytes = 1024;
  std::string result;
  for (const auto& note : notes)
    result += (result.empty() ? "" : "; ") + note;
  for (auto& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7E)
      c = '?';
  result.resize(std::min(result.size(), most_bytes));
  return result;
}

std::string warnings_of_notes(const std::vector<std::string>& notes) {
  std::string result;
  for (const auto& note : notes)
    result += (result.empty() ? "[" : ",") + json_text(to_utf8(note));
  return result.empty() ? "[]" : result + ']';
}

std::string_view field_for_several(const field_reader& body) {
  for (const auto* each : repertoire())
    for (const auto& option : each->options)
      if (option.in(technique_option::several) && body.has(option.name))
        return option.name;
  return {};
}

} // namespace troupe
