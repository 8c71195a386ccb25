#include "runtime/techniques/watermark/watermark_fields.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/techniques/watermark/technique.hpp"

#include <algorithm>
#include <array>

namespace troupe::watermarks {

namespace {

struct scheme {
  std::string_view name;
  context_kind context;
  int width; // unless the request says
};

constexpr auto schemes = std::to_array<scheme>({
  {"lefthash", context_kind::sum, 1},
  {"selfhash", context_kind::self, 3},
  {"sum", context_kind::sum, 4},
  {"min", context_kind::min, 4},
  {"sequence", context_kind::sequence, 4},
});

constexpr auto known_fields = std::to_array<std::string_view>(
  {"type", "scheme", "context_width", "gamma", "delta", "key"});

kind read_kind(const field_reader& mark) {
  const auto type = mark.text("type");
  if (type == "green")
    return kind::green;
  if (type == "gumbel")
    return kind::gumbel;
  mark.refuse("type", "must be \"green\" or \"gumbel\"");
}

scheme read_scheme(const field_reader& mark, kind what) {
  const auto name = mark.text("scheme").value_or(what == kind::green ? "lefthash" : "sequence");
  const auto found = std::ranges::find(schemes, name, &scheme::name);
  if (found == schemes.end())
    mark.refuse("scheme", "must be \"lefthash\", \"selfhash\", \"sum\", \"min\" or \"sequence\"");
  if (what == kind::gumbel && found->context == context_kind::self)
    mark.refuse("scheme", "cannot be \"selfhash\" with \"gumbel\"");
  return *found;
}

/// Not echoed, whatever it is.
hash_key read_key(const field_reader& mark, const std::optional<hash_key>& fallback) {
  const auto given = mark.find("key");
  if (!given) {
    if (!fallback)
      mark.refuse("key", "is required, as this server has no key of its own");
    return *fallback;
  }
  std::string_view text;
  if (given->get(text) || text.empty() || text.size() > most_key_bytes)
    mark.refuse("key", "must be a text of 1 to " + std::to_string(most_key_bytes) + " bytes");
  return key_of(text);
}

} // namespace

options parse_watermark(const field_reader& mark, const std::optional<hash_key>& fallback) {
  for (auto [key, value] : json::object(mark.body()))
    if (std::ranges::find(known_fields, std::string_view(key)) == known_fields.end())
      mark.refuse(std::string_view(key).substr(0, 64), "is not a field of a watermark");
  options result;
  result.what = read_kind(mark);
  const auto chosen = read_scheme(mark, result.what);
  result.context = chosen.context;
  const auto widest = chosen.name == "lefthash" ? 1 : most_context;
  result.width = static_cast<int>(mark.integer("context_width", 1, widest).value_or(chosen.width));
  const auto gamma = mark.number("gamma", {0.001, 0.999});
  const auto delta = mark.number("delta", {-most_delta, most_delta});
  if (result.what == kind::gumbel && (gamma || delta))
    mark.refuse(gamma ? "gamma" : "delta", "is for green lists only, not for \"gumbel\"");
  result.gamma = static_cast<float>(gamma.value_or(static_cast<double>(result.gamma)));
  result.delta = static_cast<float>(delta.value_or(static_cast<double>(result.delta)));
  result.key = read_key(mark, fallback);
  return result;
}

std::shared_ptr<const options> read_mark(const field_reader& body, const std::optional<hash_key>& fallback) {
  const auto given = body.find("watermark");
  if (!given || (given->is_bool() && !bool(*given)))
    return nullptr;
  if (!given->is_string())
    return std::make_shared<options>(parse_watermark(*body.object("watermark"), fallback));
  const auto text = json::document::parse(json_object().text("type", std::string_view(*given)).str(), "`watermark`",
                                          errc::bad_request);
  return std::make_shared<options>(parse_watermark(field_reader(text.root(), "watermark"), fallback));
}

detection_request read_detection(const field_reader& body, const technique_values& values, int vocab, std::size_t most,
                                 const std::function<std::vector<token_id>(std::string_view)>& encode) {
  const auto* kept = values.find<settings>(watermark_technique);
  detection_request result{read_mark(body, kept ? kept->key : std::nullopt), {}};
  if (!result.mark && kept)
    result.mark = kept->mark;
  if (!result.mark)
    body.refuse("watermark", "is required, as this server has no watermark of its own");
  const auto text = body.text("text");
  auto ids = body.ids("tokens", 0, vocab - 1, most);
  if (text.has_value() == ids.has_value())
    body.refuse("text", text ? "excludes `tokens`" : "or `tokens` is required");
  if (text && !encode)
    body.refuse("text", "needs a tokenizer, and this model has none: give `tokens`");
  result.tokens = text ? encode(*text) : std::move(*ids);
  return result;
}

std::string detection_object(const options& mark, const detection& found) {
  const bool green = mark.what == kind::green;
  return json_object()
    .text("object", "watermark.detection")
    .text("type", green ? "green" : "gumbel")
    .number("tokens", found.tokens)
    .number(green ? "green" : "score", found.score)
    .number("z", found.z)
    .number("p", found.p)
    .str();
}

} // namespace troupe::watermarks
