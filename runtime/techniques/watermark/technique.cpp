#include "runtime/techniques/watermark/technique.hpp"

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/techniques/watermark/marker.hpp"
#include "runtime/techniques/watermark/watermark_fields.hpp"

#include <array>
#include <cstdlib>
#include <sstream>

namespace troupe {

namespace watermarks {

namespace {

constexpr auto field = "watermark";
constexpr auto key_variable = "TROUPE_WATERMARK_KEY";

class use final : public technique_use {
public:
  explicit use(std::shared_ptr<const options> mark) : mark_(std::move(mark)) {}

  const technique& of() const override { return watermark_technique; }
  const options& mark() const { return *mark_; }
  // The answers of one request have different keys as long as there are enough, those of several by their seeds.
  std::unique_ptr<logits_edit> edit(std::uint64_t seed, std::uint32_t index) const override {
    if (mark_->what == kind::green)
      return std::make_unique<marker>(mark_);
    auto own = std::make_shared<options>(*mark_);
    const auto low = keyed::mix(static_cast<std::uint32_t>(seed)), high = static_cast<std::uint32_t>(seed >> 32);
    own->key = subkey(mark_->key, (keyed::mix(low ^ high) + index) % subkeys);
    return std::make_unique<marker>(std::move(own));
  }
  bool edits() const override { return true; }

  void check(const sampling_params& p) const override {
    if (const auto together = p.group(); together && together->ranked)
      throw failure(errc::bad_request, "`watermark` cannot be used with " + together->name(), field);
    if (mark_->what != kind::gumbel)
      return;
    if (p.greedy()) {
      classic<std::ostringstream> why;
      why << "`temperature` must be above 0 with a Gumbel watermark, which marks draws, not " << p.temperature << '.';
      throw failure(errc::bad_request, why.str(), "temperature");
    }
    if (p.mirostat != 0)
      refuse_field("mirostat", "must be 0 with a Gumbel watermark, not " + std::to_string(p.mirostat) + '.');
  }

private:
  std::shared_ptr<const options> mark_;
};

hash_key checked_key(std::string secret, const std::string& source) {
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r'))
    secret.pop_back();
  if (secret.empty() || secret.size() > most_key_bytes)
    throw failure(errc::bad_request,
                  source + " must hold a watermark's key of 1 to " + std::to_string(most_key_bytes) + " bytes");
  return key_of(secret);
}

technique_use_ptr read(const field_reader& body, const technique_facts& model) {
  const auto* kept = model.values.find<settings>(watermark_technique);
  if (!kept || !kept->mark)
    return marked_by(read_mark(body, kept ? kept->key : std::nullopt));
  if (body.has(field))
    body.refuse(field, "cannot be chosen: this server marks every answer in its own way");
  return marked_by(kept->mark);
}

technique_use_ptr of_flags(const flag_values& flags) { return marked_by(mark_of_flags(flags)); }

std::shared_ptr<const void> serve(const flag_values& flags) {
  auto kept = std::make_shared<settings>(settings{mark_of_flags(flags), key_of_flags(flags)});
  return kept->mark || kept->key ? kept : nullptr;
}

using option = technique_option;

constexpr auto table = std::to_array<option>({
  {field, option::completion | option::chat},
  {field, option::run, option::kind::text, "MARK",
   "Watermark the text, for `troupe detect` to recognise: green, gumbel, or a JSON object as in requests"},
  {"watermark_key_file", option::run, option::kind::text, "FILE",
   "With --watermark: a file with its secret key [the value of TROUPE_WATERMARK_KEY]"},
  {field, option::server, option::kind::text, "MARK",
   "Mark every answer: green, gumbel, or an object as in requests; by default those that ask"},
  {"watermark_key_file", option::server, option::kind::text, "FILE",
   "A file with its secret key [the value of TROUPE_WATERMARK_KEY]"},
});

} // namespace

technique_use_ptr marked_by(std::shared_ptr<const options> mark) {
  return mark ? std::make_shared<use>(std::move(mark)) : nullptr;
}

const options* mark_of(const technique_use* by) { return by ? &static_cast<const use*>(by)->mark() : nullptr; }

std::optional<hash_key> key_of_flags(const flag_values& flags) {
  if (const auto file = text_of(flags, "watermark_key_file"); !file.empty())
    return checked_key(read_start(file, most_key_bytes + 2), file);
  if (const char* secret = std::getenv(key_variable); secret && *secret)
    return checked_key(secret, key_variable);
  return std::nullopt;
}

std::shared_ptr<const options> mark_of_flags(const flag_values& flags) {
  const auto mark = text_of(flags, field);
  if (mark.empty())
    return nullptr;
  const auto text = mark.front() == '{' ? mark : "{\"type\":" + json_text(mark) + '}';
  const auto parsed = json::document::parse(text, "--watermark", errc::bad_request);
  const field_reader fields(parsed.root(), field);
  if (fields.has("key"))
    throw failure(errc::bad_request,
                  "--watermark may not hold the key, as other users can read command lines: it comes from "
                  "--watermark-key-file or TROUPE_WATERMARK_KEY");
  const auto secret = key_of_flags(flags);
  if (!secret)
    throw failure(errc::bad_request, "--watermark needs a key, from --watermark-key-file or TROUPE_WATERMARK_KEY");
  return std::make_shared<options>(parse_watermark(fields, secret));
}

} // namespace watermarks

const technique watermark_technique{.name = "watermark",
                                    .options = watermarks::table,
                                    .read = watermarks::read,
                                    .of_flags = watermarks::of_flags,
                                    .serve = watermarks::serve};

} // namespace troupe
