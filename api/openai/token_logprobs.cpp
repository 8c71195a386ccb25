#include "api/openai/token_logprobs.hpp"

#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/hex.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace troupe {

namespace {

std::string bytes_of(token_id id, const served_model& model) {
  return model.token_bytes ? model.token_bytes(id) : std::string();
}

/// Whether the token is special and left out of the text.
bool is_hidden(token_id id, const served_model& model) {
  const std::span one(&id, 1);
  return model.decode && model.decode(one, true).empty() && !model.decode(one, false).empty();
}

/// How many characters of the text the token makes.
std::size_t characters_of(token_id id, const served_model& model) {
  return is_hidden(id, model) ? 0 : count_characters(bytes_of(id, model));
}

json_object chat_token(token_id id, const std::string& logprob, const served_model& model) {
  const auto bytes = bytes_of(id, model);
  std::vector<std::string> values;
  for (const unsigned char c : bytes)
    values.push_back(std::to_string(c));
  json_object result;
  result.text("token", to_utf8(bytes)).raw("logprob", logprob).list("bytes", values);
  return result;
}

/// The spelling of a token in completions: its text, or `bytes:\xe2\x80` if that is not UTF-8.
std::string spelled(token_id id, const served_model& model) {
  const auto bytes = bytes_of(id, model);
  if (is_utf8(bytes))
    return bytes;
  std::string result = "bytes:";
  for (const unsigned char c : bytes)
    append_hex(result += "\\x", c);
  return result;
}

std::span<const token_logprob> likeliest(const sampled_token& token, std::size_t most) {
  return std::span(token.top).first(std::min(most, token.top.size()));
}

/// `rank`: 1 for the likeliest, 0 if unknown.
void add_prompt_entry(json_object& to, token_id id, float logprob, std::size_t rank, const served_model& model) {
  to.object(std::to_string(id),
            json_object()
              .raw("logprob", json_logprob(logprob))
              .raw("rank", rank > 0 ? std::to_string(rank) : "null")
              .text("decoded_token", to_utf8(bytes_of(id, model))));
}

} // namespace

std::string json_logprob(float value) {
  if (!std::isfinite(value))
    return "-9999.0";
  return shortest_digits(value);
}

std::string json_logprob(double value) { return std::isfinite(value) ? json_number(value) : "-9999.0"; }

std::string chat_logprobs(const std::vector<sampled_token>& tokens, const served_model& model, bool first_unknown) {
  std::vector<std::string> all;
  for (const auto& token : tokens) {
    const bool unknown = first_unknown && &token == tokens.data();
    std::vector<std::string> top;
    for (const auto& other : token.top)
      top.push_back(chat_token(other.id, json_logprob(other.logprob), model).str());
    all.push_back(
      chat_token(token.id, unknown ? "null" : json_logprob(token.logprob), model).list("top_logprobs", top).str());
  }
  return json_list(all);
}

std::string prompt_logprobs_json(const std::vector<sampled_token>& prompt, int most, const served_model& model) {
  std::vector<std::string> all;
  for (const auto& token : prompt) {
    if (&token == prompt.data()) {
      all.emplace_back("null");
      continue;
    }
    const auto found = std::ranges::find(token.top, token.id, &token_logprob::id);
    const auto rank = found == token.top.end() ? 0 : static_cast<std::size_t>(found - token.top.begin()) + 1;
    json_object entry;
    add_prompt_entry(entry, token.id, token.logprob, rank, model);
    std::size_t place = 0;
    for (const auto& other : likeliest(token, static_cast<std::size_t>(most)))
      if (++place; other.id != token.id)
        add_prompt_entry(entry, other.id, other.logprob, place, model);
    all.push_back(entry.str());
  }
  return json_list(all);
}

std::vector<std::size_t> text_offsets(std::size_t start, const std::vector<sampled_token>& tokens,
                                      const served_model& model) {
  std::vector<std::size_t> result;
  result.reserve(tokens.size());
  for (const auto& token : tokens) {
    result.push_back(start);
    start += characters_of(token.id, model);
  }
  return result;
}

void completion_logprobs::append(const std::string& token, const std::string& value, const std::string& top,
                                 std::size_t offset) {
  tokens_.push_back(json_text(token));
  values_.push_back(value);
  tops_.push_back(top);
  offsets_.push_back(std::to_string(offset));
}

void completion_logprobs::add(const sampled_token& token, std::size_t offset) {
  const auto name = spelled(token.id, *model_);
  const auto value = json_logprob(token.logprob);
  json_object top;
  std::vector<std::string> names; // keys, of which each may appear once
  for (const auto& other : likeliest(token, most_)) {
    auto its = other.id == token.id ? name : spelled(other.id, *model_);
    if (std::ranges::find(names, its) != names.end())
      continue; // of tokens that are spelled alike, the likeliest stands
    top.raw(its, json_logprob(other.logprob));
    names.push_back(std::move(its));
  }
  // The token itself is always listed, so there may be one more than requested.
  if (std::ranges::find(names, name) == names.end())
    top.raw(name, value);
  append(name, value, top.str(), offset);
}

void completion_logprobs::add_prompt(const std::vector<sampled_token>& prompt, std::size_t characters) {
  const auto offsets = text_offsets(0, prompt, *model_);
  const auto end = prompt.empty() ? 0 : offsets.back() + characters_of(prompt.back().id, *model_);
  const auto missing = end - std::min(characters, end); // some tokenizers drop the space ahead of a text
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    const auto offset = offsets[i] - std::min(missing, offsets[i]);
    if (i == 0)
      append(spelled(prompt[i].id, *model_), "null", "null", offset);
    else
      add(prompt[i], offset);
  }
}

std::string completion_logprobs::json() const {
  return json_object()
    .list("tokens", tokens_)
    .list("token_logprobs", values_)
    .list("top_logprobs", tops_)
    .list("text_offset", offsets_)
    .str();
}

} // namespace troupe
