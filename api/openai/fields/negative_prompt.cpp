#include "api/openai/fields/negative_prompt.hpp"

#include "runtime/engine/checked_generation.hpp"
#include "runtime/engine/context_length.hpp"

namespace troupe {

std::vector<token_id> read_negative_prompt(const field_reader& body, const served_model& model, bool special) {
  constexpr auto field = "negative_prompt";
  const auto found = body.find(field);
  if (!found)
    return {};
  std::string_view text;
  json::array list;
  std::vector<token_id> ids;
  if (!found->get(text)) {
    if (!model.encode)
      body.refuse(field, "must be a list of token ids: this model has no tokenizer");
    const auto context = static_cast<std::size_t>(model.max_context);
    if (model.most_bytes_per_token > 0 && text.size() / model.most_bytes_per_token > context)
      throw beyond_context(model.max_context,
                           "`" + body.path(field) + "` is a text of " + std::to_string(text.size()) +
                             " bytes, which has more",
                           body.path(field));
    ids = model.encode(text, special);
  } else if (!found->get(list)) {
    check_prompt_length(list.size(), model.max_context, field); // before copying it
    ids = read_ids(body, field, list, 0, model.vocab_size - 1);
  } else {
    body.refuse(field, "a string or a list of token ids", *found);
  }
  check_prompt_length(ids.size(), model.max_context, field);
  return ids;
}

} // namespace troupe
