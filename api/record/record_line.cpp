#include "api/record/record_line.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/text/hex.hpp"

#include <bit>
#include <limits>

namespace troupe {

namespace {

constexpr auto most = std::numeric_limits<std::int64_t>::max();
// Bounds for files that perhaps no server has written: tokens of a text, and ten years.
constexpr std::int64_t most_tokens = 1 << 24, most_us = 315'360'000'000'000;

// Eight digits for each, of its bits: so that what is read is what was written, and short.
std::string bits_of(const std::vector<float>& values) {
  std::string text;
  for (const auto value : values)
    for (int shift = 24; shift >= 0; shift -= 8)
      append_hex(text, static_cast<unsigned char>(std::bit_cast<std::uint32_t>(value) >> shift & 0xFF));
  return text;
}

std::uint64_t read_hex(const json::reader& at, std::string_view digits) {
  std::uint64_t value = 0;
  for (const auto c : digits) {
    const auto digit = hex_value(c);
    if (!digit)
      at.refuse("must have hexadecimal digits only");
    value = value << 4 | *digit;
  }
  return value;
}

std::vector<float> floats_of(const json::reader& at) {
  const auto text = at.string();
  if (text.size() % 8 != 0)
    at.refuse("must have eight digits for each token");
  std::vector<float> values;
  for (std::size_t i = 0; i < text.size(); i += 8)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(read_hex(at, text.substr(i, 8)))));
  return values;
}

std::string hex_of(std::uint64_t value) {
  std::string text;
  for (int shift = 56; shift >= 0; shift -= 8)
    append_hex(text, static_cast<unsigned char>(value >> shift & 0xFF));
  return text;
}

std::string json_of(const recorded_answer& its) {
  json_object o;
  o.number("tokens", its.tokens).text_or_null("finish", its.finish);
  if (!its.ids.empty())
    o.raw("ids", json_ids(its.ids)).text("logprobs", bits_of(its.logprobs));
  return o.str();
}

std::string json_of(const recorded_prompt& its) {
  json_object o;
  o.text("seed", hex_of(its.seed))
    .number("max_tokens", its.max_tokens)
    .number("tokens", its.tokens)
    .number("cached", its.cached);
  std::vector<std::string> answers;
  for (const auto& each : its.answers)
    answers.push_back(json_of(each));
  o.list("answers", answers);
  if (its.values)
    o.text("values", hex_of(*its.values));
  return o.str();
}

json_object members_of(const recorded_head& its) {
  json_object o;
  o.number("troupe_record", its.format)
    .text("version", its.version)
    .text("build", its.build)
    .text("begun", its.begun)
    .number("process", its.process);
  return o.flag("prompts", its.has_prompts);
}

json_object members_of(const recorded_model& its) {
  return json_object().text("model", its.name).text_or_null("files", its.files);
}

json_object members_of(const recorded_begin& its) {
  json_object o;
  o.number("begin", its.number).number("us", its.at.count()).text("id", its.id).text("endpoint", its.endpoint);
  o.text("client", its.client);
  if (!its.body.empty())
    o.text("body", its.body);
  return o;
}

json_object members_of(const recorded_end& its) {
  json_object o;
  o.number("end", its.number).number("us", its.at.count()).number("first_us", its.first.count());
  o.number("status", its.status).text_or_null("model", its.model);
  std::vector<std::string> prompts;
  for (const auto& each : its.prompts)
    prompts.push_back(json_of(each));
  return o.list("prompts", prompts);
}

recorded_answer read_answer(const json::reader& from) {
  recorded_answer its;
  its.tokens = static_cast<std::size_t>(from.at("tokens").integer(0, most_tokens));
  its.finish = from.string("finish").value_or("");
  its.ids = from.integers("ids", 0, std::numeric_limits<token_id>::max()).value_or(std::vector<token_id>());
  if (const auto bits = from.child("logprobs"))
    its.logprobs = floats_of(*bits);
  if (its.logprobs.size() != its.ids.size())
    from.refuse("must have a log-probability for each token");
  return its;
}

recorded_prompt read_prompt(const json::reader& from) {
  recorded_prompt its;
  its.seed = read_hex(from, from.at("seed").string());
  its.max_tokens = from.integer("max_tokens", 0, std::numeric_limits<int>::max(), 0);
  its.tokens = static_cast<std::size_t>(from.at("tokens").integer(0, most_tokens));
  its.cached = static_cast<std::size_t>(from.at("cached").integer(0, most_tokens));
  for (const auto& each : from.at("answers").items())
    its.answers.push_back(read_answer(each));
  if (const auto values = from.text("values"))
    its.values = read_hex(from, *values);
  return its;
}

record_time time_at(const json::reader& from, std::string_view key) {
  return record_time(from.at(key).integer(0, most_us));
}

} // namespace

std::string line_of(const recorded_line& what) {
  return std::visit([](const auto& its) { return members_of(its).str() + '\n'; }, what);
}

recorded_line parse_record_line(std::string_view text, const std::string& source) {
  const auto document = json::document::parse(text, source);
  const json::reader from(document);
  if (from.has("begin")) {
    recorded_begin its{static_cast<std::uint64_t>(from.at("begin").integer(1, most)),
                       time_at(from, "us"),
                       std::string(from.at("id").string()),
                       std::string(from.at("endpoint").string()),
                       std::string(from.at("client").string()),
                       from.string("body").value_or("")};
    return its;
  }
  if (from.has("end")) {
    recorded_end its{static_cast<std::uint64_t>(from.at("end").integer(1, most)),
                     time_at(from, "us"),
                     time_at(from, "first_us"),
                     static_cast<unsigned>(from.at("status").integer(0, 999)),
                     from.string("model").value_or(""),
                     {}};
    for (const auto& each : from.at("prompts").items())
      its.prompts.push_back(read_prompt(each));
    return its;
  }
  if (from.has("model"))
    return recorded_model{std::string(from.at("model").string()), from.string("files").value_or("")};
  return recorded_head{static_cast<int>(from.at("troupe_record").integer(1, recorded_head::newest)),
                       std::string(from.at("version").string()),
                       from.string("build").value_or(""),
                       std::string(from.at("begun").string()),
                       from.at("process").integer(0, most),
                       from.at("prompts").boolean()};
}

} // namespace troupe
