#include "api/openai/fields/prediction.hpp"

namespace troupe {

namespace {

std::string text_of_part(const field_reader& at, const std::string& name, json::value item) {
  if (!item.is_object())
    at.refuse(name, "an object", item);
  const field_reader part(item, at.path(name));
  const auto type = part.text("type").value_or("text");
  if (type != "text")
    throw failure(errc::unsupported, "`" + part.path("type") + "` is \"" + std::string(type) + "\", not \"text\"",
                  part.path("type"));
  const auto text = part.text("text");
  if (!text)
    part.refuse("text", "is required");
  return std::string(*text);
}

std::string content_of(const field_reader& prediction) {
  const auto content = prediction.find("content");
  if (!content)
    prediction.refuse("content", "is required");
  std::string_view text;
  if (!content->get(text))
    return std::string(text);
  if (!content->is_array())
    prediction.refuse("content", "a string or a list of text parts", *content);
  const auto parts = *prediction.list("content", most_prediction_parts);
  std::string result;
  std::size_t number = 0;
  for (auto item : parts)
    result += text_of_part(prediction, "content[" + std::to_string(number++) + "]", item);
  return result;
}

} // namespace

std::vector<token_id> read_prediction(const field_reader& body, const served_model& model) {
  const auto prediction = body.object("prediction");
  if (!prediction)
    return {};
  if (const auto type = prediction->text("type"); type != "content")
    prediction->refuse("type", "must be \"content\"");
  const auto source = body.text("speculate").value_or("auto");
  if (source != "auto" && source != "ngram")
    body.refuse("prediction",
                "needs `speculate` to be \"auto\" or \"ngram\", not \"" + std::string(source) +
                  "\", which does not read it");
  if (!model.encode)
    body.refuse("prediction", "needs a tokenizer, and this model has none");
  const auto text = content_of(*prediction);
  const auto context = static_cast<std::size_t>(model.max_context);
  if (model.most_bytes_per_token > 0 && text.size() / model.most_bytes_per_token > context)
    prediction->refuse("content",
                       "is a text of " + std::to_string(text.size()) + " bytes, which cannot fit into the context of " +
                         std::to_string(context) + " tokens");
  auto ids = model.encode(text, false);
  if (ids.size() > context)
    prediction->refuse("content",
                       "has " + std::to_string(ids.size()) + " tokens, which cannot fit into the context of " +
                         std::to_string(context));
  return ids;
}

} // namespace troupe
