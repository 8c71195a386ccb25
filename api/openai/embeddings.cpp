#include "api/openai/embeddings.hpp"

#include "api/http/request_scope.hpp"
#include "api/openai/fields/known_fields.hpp"
#include "api/openai/openai_request.hpp"
#include "runtime/engine/checked_generation.hpp"
#include "runtime/model/pooled_head.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/base64.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

namespace troupe {

namespace {

constexpr auto fields = std::to_array<std::string_view>({"model", "input", "encoding_format", "dimensions", "user",
                                                         "normalize", "add_special_tokens", "truncate_prompt_tokens",
                                                         "prompt_name", "task"});

/// The bytes of little-endian floats, as OpenAI has it.
std::string base64_of(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  return encode_base64({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

/// Calls `add` for each input: one text, one list of ids, a list of texts, or a list of lists of ids.
template <class Add>
void read_inputs(const field_reader& body, const served_model& model, const std::stop_token& stop, Add add) {
  constexpr auto wanted = "a string, a list of token ids, or a list of either";
  const auto found = body.find("input");
  if (!found)
    body.refuse("input", "is required");
  const bool special = body.boolean("add_special_tokens").value_or(true);
  const std::string prompt(prompt_of(body, model));
  const auto encode = [&](std::string_view text) {
    add(encoded_prompt(body, "input", model, prompt.empty() ? text : prompt + std::string(text), special));
  };
  std::string_view text;
  json::array list, ids;
  if (!found->get(text))
    return encode(text);
  if (found->get(list))
    body.refuse("input", wanted, *found);
  if (list.size() == 0)
    body.refuse("input", "must not be empty");
  if (list.at(0).value().is_number()) {
    check_prompt_length(list.size(), model.max_context, "input", false);
    return add(read_ids(body, "input", list, 0, model.vocab_size - 1));
  }
  check_entries(body, "input", list.size(), most_inputs);
  for (auto item : list) {
    check(stop);
    if (!item.get(text))
      encode(text);
    else if (!item.get(ids))
      add(read_ids(body, "input", ids, 0, model.vocab_size - 1));
    else
      body.refuse("input", wanted, item);
  }
}

class embedding_answer final : public answer_writer {
public:
  embedding_answer(std::string model, std::size_t inputs, vector_form form, bool base64)
    : model_(std::move(model)), vectors_(inputs), form_(form), base64_(base64) {}

  void withhold(const output_filter&) override {} // it says no text
  std::string take(std::size_t, const token_event&) override { return {}; }
  std::string take(std::size_t input, const done_event& e) override {
    const auto values = formed(e.embedding, form_);
    vectors_[input] = json_object()
                        .text("object", "embedding")
                        .number("index", input)
                        .raw("embedding", base64_ ? json_text(base64_of(values)) : json_floats(values))
                        .str();
    tokens_ += e.prompt_tokens;
    return {};
  }
  std::string end() override { return {}; }
  std::string fail(const error&) override { return {}; }

  std::string body() override {
    return json_object()
      .text("object", "list")
      .raw("data", json_list(vectors_))
      .text("model", to_utf8(model_))
      .raw("usage", json_object().number("prompt_tokens", tokens_).number("total_tokens", tokens_).str())
      .str();
  }

private:
  std::string model_;
  std::vector<std::string> vectors_; // as JSON
  vector_form form_;
  bool base64_;
  std::uint64_t tokens_ = 0;
};

} // namespace

void require_embeddings(const served_model& model) {
  if (model.embeddings.how == pooling::none)
    throw failure(errc::unsupported, "this model has no embeddings: " + model.embeddings.refusal, "model");
}

std::string_view prompt_of(const field_reader& body, const served_model& model) {
  return prompt_named(body.string("prompt_name").value_or(model.embeddings.usual_prompt), model);
}

std::string_view prompt_named(const std::string& name, const served_model& model) {
  if (name.empty())
    return {};
  const auto found = std::ranges::find(model.embeddings.prompts, name, &text_prompt::name);
  if (found != model.embeddings.prompts.end())
    return found->text;
  std::string known;
  for (const auto& prompt : model.embeddings.prompts)
    known += (known.empty() ? "" : ", ") + prompt.name;
  refuse_field("prompt_name",
               "is not the name of a prompt of this model, which has " + (known.empty() ? "none" : known));
}

generation embedding_of(std::vector<token_id> prompt, const served_model& model, std::string_view field) {
  check_prompt_length(prompt.size(), model.max_context, field, false);
  generation result;
  result.model = model.id;
  result.prompt = std::move(prompt);
  result.sampling.max_tokens = 1; // valid, though nothing is sampled
  result.embed = model.embeddings.how;
  return result;
}

std::optional<std::size_t> read_dimensions(const field_reader& body, const served_model& model) {
  const auto width = model.dense ? static_cast<int>(model.dense->outputs()) : model.hidden;
  const auto found = body.integer("dimensions", 1, width);
  return found ? std::optional(static_cast<std::size_t>(*found)) : std::nullopt;
}

std::vector<float> formed(std::span<const float> pooled, const vector_form& form) {
  std::vector<float> projected;
  if (form.dense)
    pooled = projected = (*form.dense)(pooled);
  const auto size = std::min(form.dimensions.value_or(pooled.size()), pooled.size());
  std::vector<float> result(pooled.begin(), pooled.begin() + static_cast<std::ptrdiff_t>(size));
  if (!form.normalise)
    return result;
  double squares = 0;
  for (const double v : result)
    squares += v * v;
  const auto length = std::sqrt(squares);
  for (float& v : result)
    v = length > 0 ? static_cast<float>(v / length) : v;
  return result;
}

std::string json_floats(std::span<const float> values) {
  std::string result = "[";
  char digits[32];
  for (const float v : values) {
    result += result.size() > 1 ? "," : "";
    result.append(digits, std::to_chars(digits, digits + sizeof digits, std::isfinite(v) ? v : 0).ptr);
  }
  return result += ']';
}

generation_job embedding_job(const field_reader& body, std::shared_ptr<const served_model> model,
                             const std::stop_token& stop) {
  require_model_itself(body, *model, "embeddings are made");
  require_embeddings(*model);
  if (body.has("truncate_prompt_tokens"))
    refuse_field("truncate_prompt_tokens", "is not supported", errc::unsupported);
  if (body.has("task")) // Jina's
    refuse_field("task",
                 "is not supported: embeddings are made by the model itself, without adapters for tasks; "
                 "`prompt_name` chooses one of its prompts",
                 errc::unsupported);
  const auto encoding = body.text("encoding_format").value_or("float");
  if (encoding != "float" && encoding != "base64")
    body.refuse("encoding_format", "must be \"float\" or \"base64\", not \"" + std::string(encoding) + '"');
  const auto dimensions = read_dimensions(body, *model);
  // The beginning of a vector has another length, so it is normalised again, unless the client says otherwise.
  const bool normalise = body.boolean("normalize").value_or(model->embeddings.normalise || dimensions);
  const vector_form form{normalise, dimensions, model->dense};
  generation_job job;
  job.notes = notes_on_members(body, model->unknown, fields);
  read_inputs(body, *model, stop,
              [&](std::vector<token_id> ids) { job.prompts.push_back(embedding_of(std::move(ids), *model, "input")); });
  for (auto& one : job.prompts)
    one.cache_salt = read_cache_salt(body);
  job.writer = std::make_unique<embedding_answer>(model->id, job.prompts.size(), form, encoding == "base64");
  return job;
}

} // namespace troupe
