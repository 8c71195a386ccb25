#include "api/openai/translated_request.hpp"

namespace troupe {

namespace {

/// Whether `path` is the field or a part of it.
bool leads_to(std::string_view path, std::string_view field) {
  return path.starts_with(field) &&
    (path.size() == field.size() || path[field.size()] == '.' || path[field.size()] == '[' ||
     path[field.size()] == '`');
}

/// Names that begin with ']' stand within a path.
void replace_within(std::string& text, std::span<const field_name> names) {
  for (const auto& name : names)
    if (name.translated.starts_with(']'))
      for (auto at = text.find(name.translated); at != text.npos; at = text.find(name.translated, at + 1))
        text.replace(at, name.translated.size(), name.own);
}

} // namespace

error in_own_names(error what, std::span<const field_name> names) {
  for (const auto& name : names)
    if (leads_to(what.param, name.translated)) {
      what.param.replace(0, name.translated.size(), name.own);
      break;
    }
  std::string message;
  for (std::size_t i = 0; i < what.message.size(); ++i) {
    message += what.message[i];
    if (what.message[i] != '`')
      continue;
    const auto rest = std::string_view(what.message).substr(i + 1);
    for (const auto& name : names)
      if (leads_to(rest, name.translated) && rest.size() > name.translated.size()) {
        message += name.own;
        i += name.translated.size();
        break;
      }
  }
  what.message = std::move(message);
  replace_within(what.message, names);
  replace_within(what.param, names);
  return what;
}

namespace {

void name_notes(std::vector<std::string>& notes, std::span<const field_name> names) {
  for (auto& note : notes)
    note = in_own_names({{}, note, {}}, names).message;
}

} // namespace

generation_request parse_translated(dialect speaks, const std::string& body, const served_model& model,
                                    std::span<const field_name> names, const std::stop_token& stop,
                                    sampling_convention users) {
  try {
    const auto document = json::document::parse(body, "the body", errc::bad_request);
    auto result = parse_generation(speaks, field_reader(document.root()), model, stop, {}, users);
    name_notes(result.notes, names);
    for (auto& one : result.prompts)
      if (const auto* form = one.sampling.techniques.constraint()) // compiled later, and then its field is named
        one.sampling.techniques.set(form->renamed([&](const std::string& field) {
          return in_own_names({{}, {}, field}, names).param;
        }));
    return result;
  } catch (const failure& f) {
    const auto own = in_own_names(f.what_failed(), names);
    throw failure(own.code, own.message, own.param);
  }
}

counted_prompt count_translated(const std::string& body, const served_model& model, std::span<const field_name> names,
                                const std::stop_token& stop, std::size_t most) {
  try {
    const auto document = json::document::parse(body, "the body", errc::bad_request);
    auto result = count_chat_tokens(field_reader(document.root()), model, stop, most);
    name_notes(result.notes, names);
    return result;
  } catch (const failure& f) {
    const auto own = in_own_names(f.what_failed(), names);
    throw failure(own.code, own.message, own.param);
  }
}

} // namespace troupe
