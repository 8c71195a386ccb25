#include "api/openai/fields/sampling_fields.hpp"

#include "api/openai/fields/sampler_fields.hpp"
#include "api/openai/object_id.hpp"
#include "runtime/sampling/sampling_table.hpp"
#include "runtime/support/json/whole_number.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

constexpr std::size_t most_modalities = 16;

/// The value beside null with which an unsupported field asks for nothing.
enum class neutral : std::uint8_t { none, off, empty, zero, one, on };

bool is_neutral(json::value v, neutral kind) {
  double number = 0;
  const bool is_number = v.is_number() && !v.get(number);
  switch (kind) {
    case neutral::none: return false;
    case neutral::off: return v.is_bool() && !bool(v);
    case neutral::on: return v.is_bool() && bool(v);
    case neutral::zero: return is_number && number == 0;
    case neutral::one: return is_number && number == 1;
    case neutral::empty:
      return (v.is_string() && std::string_view(v).empty()) || (v.is_array() && json::array(v).size() == 0) ||
        (v.is_object() && json::object(v).size() == 0);
  }
  return false;
}

struct unsupported_field {
  std::string_view name;
  neutral harmless;
};

constexpr auto unsupported_fields = std::to_array<unsupported_field>({
  {"function_call", neutral::none},
  {"functions", neutral::empty},
  {"audio", neutral::none},
  {"web_search_options", neutral::none},
  {"chat_template", neutral::none},
  {"logits_processors", neutral::empty},
  {"truncate_prompt_tokens", neutral::none},
  {"include_stop_str_in_output", neutral::off},
  {"kv_transfer_params", neutral::none},
});

void refuse_other_modalities(const field_reader& body) {
  const auto list = body.list("modalities", most_modalities);
  if (!list)
    return;
  for (auto item : *list) {
    std::string_view text;
    if (item.get(text) || text != "text")
      refuse_field("modalities", "may only be [\"text\"]", errc::unsupported);
  }
}

std::uint64_t drawn_seed() {
  std::uint64_t seed = 0;
  for (int i = 0; i < 8; ++i)
    seed = seed << 8 | random_byte();
  return seed;
}

/// Any 64-bit integer; negative ones keep their bits. Random if absent.
std::uint64_t read_seed(const field_reader& body) {
  const auto found = body.find("seed");
  if (!found)
    return drawn_seed();
  std::uint64_t seed = 0;
  if (const auto signed_seed = json::whole_number(*found))
    return static_cast<std::uint64_t>(*signed_seed);
  if (!found->is_uint64() || found->get(seed))
    body.refuse("seed", "an integer of 64 bits", *found);
  return seed;
}

/// llama.cpp's names of how far penalties look back; -1: all, 0: no penalty.
void read_penalty_ranges(const field_reader& body, sampling_params& params) {
  const auto last = body.integer("repeat_last_n", -1, sampling_fields::most_int);
  if (last && !body.has("repetition_penalty_range")) {
    params.repetition_penalty_range = static_cast<int>(std::max<std::int64_t>(*last, 0));
    if (*last == 0)
      params.repetition_penalty = 1;
  }
  const auto dry = body.integer("dry_penalty_last_n", -1, sampling_fields::most_int);
  if (dry && !body.has("dry_range")) {
    params.dry_range = static_cast<int>(std::clamp<std::int64_t>(*dry, 0, sampling_fields::most_dry_range));
    if (*dry == 0)
      params.dry_multiplier = 0;
  }
}

} // namespace

void refuse_unsupported(const field_reader& body) {
  for (const auto& [name, harmless] : unsupported_fields) {
    const auto found = body.find(name);
    if (found && !is_neutral(*found, harmless))
      refuse_field(std::string(name), "is not supported", errc::unsupported);
  }
  refuse_other_modalities(body);
}

sampling_params read_sampling(const field_reader& body, const served_model& model, const sampling_params& defaults) {
  using namespace sampling_fields;
  auto result = defaults;
  for_each([&]<class T>(const sampling_field<T>& field) {
    if (!field.sources.request)
      return;
    const bool renamed = field.name == "repetition_penalty" && !body.has(field.name); // as in llama.cpp
    const auto name = renamed ? std::string_view("repeat_penalty") : field.name;
    const auto given = [&] {
      if constexpr (std::is_integral_v<T>)
        return body.integer(name, field.least, field.most);
      else
        return body.number(name, {field.least, field.most});
    }();
    if (given)
      result.*field.member = static_cast<T>(*given);
  });
  read_penalty_ranges(body, result);
  for (const auto* each : repertoire())
    if (each->read)
      result.techniques.set(each->read(body, facts_of(model)));
  if (const auto rank = body.text("best_of_rank"))
    result.rank = parse_best_of_rank(*rank);
  read_sampler_fields(body, model, result);
  result.settle([&](std::string_view field) {
    return body.has(field) || (field == "repetition_penalty" && body.has("repeat_penalty"));
  });
  result.seed = read_seed(body);
  result.ignore_eos = body.boolean("ignore_eos").value_or(result.ignore_eos);
  if (auto ids = body.ids("stop_token_ids", 0, model.vocab_size - 1, most_stop_ids))
    result.stop_token_ids = std::move(*ids);
  if (auto stops = body.texts("stop", most_stops))
    result.stop = std::move(*stops);
  result.check_best_of();
  result.check_samplers();
  result.check_techniques();
  return result;
}

} // namespace troupe
