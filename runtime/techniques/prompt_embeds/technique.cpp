#include "runtime/techniques/prompt_embeds/technique.hpp"

#include "kernels/ops.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/text/base64.hpp"
#include "runtime/techniques/prompt_embeds/saved_tensor.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace troupe {

namespace {

constexpr auto field = "prompt_embeds";

[[noreturn]] void refuse(const std::string& why) { throw failure(errc::bad_request, "`prompt_embeds` " + why, field); }

[[noreturn]] void refuse_width(int hidden, int width) {
  refuse("must have rows of " + std::to_string(hidden) + " numbers, as long as the model's embeddings, not " +
         std::to_string(width));
}

class rows_use final : public technique_use {
public:
  explicit rows_use(std::shared_ptr<const prompt_embeddings> rows) : rows_(std::move(rows)) {}

  const technique& of() const override { return prompt_embeds_technique; }
  const prompt_embeddings& rows() const { return *rows_; }

  technique_use_ptr fitted(technique_use_ptr self, const generation& asked,
                           const technique_limits& limits) const override {
    if (limits.hidden == 0)
      throw failure(errc::unsupported,
                    "`prompt_embeds` is not supported by this model on this device: it needs the CPU, and a model "
                    "without learned positions or tables of n-grams",
                    field);
    const auto& given = *rows_;
    if (given.width != limits.hidden)
      refuse_width(limits.hidden, given.width);
    if (given.rows < 1 || static_cast<std::size_t>(given.rows) > asked.prompt.size() ||
        given.values.size() != static_cast<std::size_t>(given.rows) * static_cast<std::size_t>(given.width))
      refuse("must have as many rows as they replace");
    if (!std::ranges::all_of(given.values, [](float v) { return std::isfinite(v); }))
      refuse("must hold finite numbers");
    if (asked.sampling.prompt_logprobs >= 0)
      refuse("cannot be scored: its rows are no tokens");
    for (const auto& other : asked.sampling.techniques)
      if (const auto why = other->needs_tokens(); !why.empty())
        refuse(std::string(why));
    if (asked.sampling.judged() && !asked.sampling.judged_behind)
      refuse_field("search", "cannot have \"model\" as `value` behind `prompt_embeds`, which are no text");
    return self;
  }

  std::size_t bytes() const override { return rows_->values.size() * sizeof(float); }
  std::uint64_t salt() const override {
    return client_salt({reinterpret_cast<const char*>(rows_->values.data()), bytes()});
  }
  bool changes_rows() const override { return true; }

private:
  std::shared_ptr<const prompt_embeddings> rows_;
};

/// Puts rows in place of what tokens gave, as the model scales its own.
layer_hook change_rows(kernels::backend&, std::vector<used_rows> rows, float scale) {
  return [rows = std::move(rows), scale](int passed, const kernels::tensor& residual) {
    if (passed > 0)
      return;
    for (const auto& each : rows) {
      const auto& given = *rows_of(each.by);
      const auto width = static_cast<std::size_t>(given.width);
      const auto count = std::min(each.rows, given.rows - each.first_position);
      for (std::int32_t i = 0; i < count; ++i) {
        const auto* from = given.values.data() + static_cast<std::size_t>(each.first_position + i) * width;
        auto* to = static_cast<float*>(residual.data) + static_cast<std::size_t>(each.first_row + i) * residual.stride;
        std::transform(from, from + width, to, [scale](float x) { return x * scale; });
      }
    }
  };
}

std::shared_ptr<const void> serve(const flag_values& flags) {
  return flags.contains("enable_prompt_embeds") ? std::make_shared<const bool>(true) : nullptr;
}

/// Tensors of torch.save in base64.
std::vector<given_prompt> read_prompts(const field_reader& body, const technique_facts& model, std::size_t most) {
  std::vector<given_prompt> result;
  if (!body.has(field))
    return result;
  if (!model.values.find<bool>(prompt_embeds_technique))
    throw failure(errc::unsupported, "`prompt_embeds` is off on this server (--enable-prompt-embeds)", field);
  const auto texts = body.texts(field, most).value_or(std::vector<std::string>());
  if (texts.empty())
    body.refuse(field, "must not be empty");
  for (const auto& text : texts) {
    const auto bytes = decode_base64(text);
    if (!bytes)
      body.refuse(field, "must be base64");
    auto one = parse_saved_tensor(*bytes);
    if (one.width != model.hidden)
      refuse_width(model.hidden, one.width);
    const auto rows = one.rows;
    result.push_back({given_rows(std::make_shared<const prompt_embeddings>(std::move(one))), rows});
  }
  return result;
}

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {field, option::completion},
  {"enable_prompt_embeds", option::server, option::kind::on, "",
   "Let clients of /v1/completions give embeddings instead of a prompt's tokens (vLLM's prompt_embeds)"},
});

} // namespace

technique_use_ptr given_rows(std::shared_ptr<const prompt_embeddings> rows) {
  return std::make_shared<rows_use>(std::move(rows));
}

const prompt_embeddings* rows_of(const technique_use* use) {
  return use ? &static_cast<const rows_use*>(use)->rows() : nullptr;
}

const technique prompt_embeds_technique{
  .name = field, .options = table, .read_prompts = read_prompts, .serve = serve, .change_rows = change_rows};

} // namespace troupe
