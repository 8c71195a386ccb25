#include "api/server/hand_over.hpp"

#include "api/openai/answer_writer.hpp"
#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/machine/build_id.hpp"
#include "runtime/support/text/hex.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <limits>

namespace troupe {

namespace {

constexpr auto largest = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t most_sequences = 1 << 16, most_tokens = 1 << 28;

std::string to_hex(std::string_view bytes) {
  std::string result;
  result.reserve(2 * bytes.size());
  for (const auto c : bytes)
    append_hex(result, static_cast<unsigned char>(c));
  return result;
}

std::string from_hex(std::string_view text) {
  std::string result;
  result.reserve(text.size() / 2);
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    result += static_cast<char>(hex_value(text[i]).value_or(0) << 4 | hex_value(text[i + 1]).value_or(0));
  return result;
}

std::string text_of(const field_reader& from, std::string_view key) { return from.string(key).value_or(std::string()); }

std::string json_of(const begun_sequence& one) {
  return json_object()
    .raw("tokens", json_ids(one.emitted))
    .number("mirostat_mu", static_cast<double>(one.mirostat_mu))
    .number("ended", static_cast<int>(one.ended))
    .str();
}

begun_sequence sequence_in(json::value text) {
  const field_reader from(text);
  begun_sequence result;
  result.emitted =
    from.ids("tokens", 0, std::numeric_limits<token_id>::max(), most_tokens).value_or(std::vector<token_id>());
  result.mirostat_mu = static_cast<float>(from.number("mirostat_mu", number_range{-1e9, 1e9}).value_or(0));
  result.ended = static_cast<begun_sequence::end>(from.integer("ended", 0, 2).value_or(0));
  return result;
}

} // namespace

std::string describe_models(const service& engine) {
  std::map<std::string, std::string> named;
  const auto all = engine.models();
  for (const auto& one : all)
    if (!one->identity.empty()) {
      named.emplace(to_utf8(one->id), one->identity);
      for (const auto& alias : one->aliases)
        named.emplace(to_utf8(alias), one->identity);
    }
  if (!all.empty() && !all.front()->identity.empty())
    named.emplace("", all.front()->identity);
  json_object models;
  for (const auto& [name, identity] : named)
    models.text(name, identity);
  return json_object()
    .text("what", "ready")
    .text("version", TROUPE_VERSION)
    .text("build", build_id())
    .object("models", models)
    .str();
}

successor successor_of(std::shared_ptr<control_peer> line, std::string_view description) {
  successor result{std::move(line), {}};
  const auto document = json::document::parse(description, "what the successor says", errc::unavailable);
  const field_reader from(document.root());
  // Of programs without a build id, the version has to do.
  result.same_program = from.string("version") == TROUPE_VERSION && text_of(from, "build") == build_id();
  if (!result.same_program)
    return result;
  if (const auto models = from.object("models"))
    for (auto field : json::object(models->body()))
      if (std::string_view identity; !field.value.get(identity))
        result.models.emplace(field.key, identity);
  return result;
}

bool successor::has(const served_model& model, std::string_view named) const {
  const auto is_it = [&](const auto& found) { return found != models.end() && found->second == model.identity; };
  const auto by_name = models.find(to_utf8(named));
  return !model.identity.empty() && is_it(models.find(to_utf8(model.id))) &&
    is_it(by_name != models.end() ? by_name : models.find(""));
}

bool is_movable(const generation_job& job, std::string_view body) {
  if (job.prompts.size() != 1)
    return false;
  const auto& one = job.prompts.front();
  const auto& sampling = one.sampling;
  const bool plain = sampling.max_tokens > 0 && one.embed == pooling::none && sampling.logprobs < 0 &&
    sampling.prompt_logprobs < 0 && sampling.best_of <= sampling.n && !sampling.group() && one.negative_prompt.empty();
  const bool alone = std::ranges::all_of(sampling.techniques,
                                         [](const auto& use) { return use->constraint() != nullptr; });
  return plain && alone && body.find("previous_response_id") == body.npos;
}

std::string to_message(const moving_request& one) {
  std::vector<std::string> headers, sequences;
  for (const auto& [name, value] : one.headers)
    headers.push_back(json_object().text("name", to_utf8(name)).text("value", to_utf8(value)).str());
  json_object result;
  result.text("what", "request")
    .text("id", to_utf8(one.id))
    .text("route", to_utf8(one.route))
    .text("client", to_utf8(one.from.client))
    .text("forwarded_for", to_utf8(one.from.forwarded_for))
    .text("key", to_utf8(one.from.key))
    .text("body", to_utf8(one.body))
    .text("drawn", to_hex(one.draws.bytes))
    .number("created", static_cast<std::int64_t>(one.draws.created))
    .number("version", one.version)
    .flag("keep_alive", one.keep_alive)
    .flag("head_sent", one.head_sent)
    .list("headers", headers)
    .text("read_ahead", to_hex(one.read_ahead))
    .number("spent_ms", one.spent_ms);
  if (!one.tokens)
    return result.str();
  for (const auto& each : *one.tokens)
    sequences.push_back(json_of(each));
  return result.list("sequences", sequences).str();
}

std::string connection_message() { return json_object().text("what", "connection").str(); }

std::unique_ptr<moving_request> moving_request_in(std::string_view message) {
  const auto document = json::document::parse(message, "what was handed over", errc::unavailable);
  const field_reader from(document.root());
  if (from.string("what") != "request")
    return nullptr;
  auto result = std::make_unique<moving_request>();
  result->id = text_of(from, "id");
  result->route = text_of(from, "route");
  result->from = {text_of(from, "client"), text_of(from, "forwarded_for"), text_of(from, "key"), {}};
  result->body = text_of(from, "body");
  result->draws.bytes = from_hex(text_of(from, "drawn"));
  result->draws.created = static_cast<std::time_t>(from.integer("created", 0, largest).value_or(0));
  result->version = static_cast<unsigned>(from.integer("version", 10, 11).value_or(11));
  result->keep_alive = from.boolean("keep_alive").value_or(true);
  result->head_sent = from.boolean("head_sent").value_or(false);
  if (auto headers = from.list("headers"))
    for (auto one : *headers) {
      const field_reader header(one);
      result->headers.emplace_back(text_of(header, "name"), text_of(header, "value"));
    }
  result->read_ahead = from_hex(text_of(from, "read_ahead"));
  result->spent_ms = from.integer("spent_ms", 0, largest).value_or(0);
  if (auto sequences = from.list("sequences", most_sequences)) {
    auto all = std::make_shared<std::vector<begun_sequence>>();
    for (auto one : *sequences)
      all->push_back(sequence_in(one));
    result->tokens = std::move(all);
  }
  return result;
}

} // namespace troupe
