#include "api/cli/watermark_options.hpp"

#include "api/openai/fields/watermark_fields.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/file_reading.hpp"
#include "runtime/support/json_text.hpp"

#include <CLI/CLI.hpp>

#include <cstdlib>

namespace troupe::cli {

namespace {

constexpr auto key_variable = "TROUPE_WATERMARK_KEY";

watermarks::hash_key checked_key(std::string secret, const std::string& source) {
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r'))
    secret.pop_back();
  if (secret.empty() || secret.size() > watermarks::most_key_bytes)
    throw failure(errc::bad_request,
                  source + " must hold a watermark's key of 1 to " + std::to_string(watermarks::most_key_bytes) +
                    " bytes");
  return watermarks::key_of(secret);
}

} // namespace

std::optional<watermarks::hash_key> watermark_options::key() const {
  if (!key_file.empty())
    return checked_key(read_start(key_file, watermarks::most_key_bytes + 2), key_file);
  if (const char* secret = std::getenv(key_variable); secret && *secret)
    return checked_key(secret, key_variable);
  return std::nullopt;
}

std::shared_ptr<const watermarks::options> watermark_options::parsed() const {
  if (mark.empty())
    return nullptr;
  const auto text = mark.front() == '{' ? mark : "{\"type\":" + json_text(mark) + '}';
  const auto parsed = json::document::parse(text, "--watermark", errc::bad_request);
  const field_reader fields(parsed.root(), "watermark");
  if (fields.has("key"))
    throw failure(errc::bad_request,
                  "--watermark may not hold the key, as other users can read command lines: it comes from "
                  "--watermark-key-file or TROUPE_WATERMARK_KEY");
  const auto secret = key();
  if (!secret)
    throw failure(errc::bad_request, "--watermark needs a key, from --watermark-key-file or TROUPE_WATERMARK_KEY");
  return std::make_shared<watermarks::options>(parse_watermark(fields, secret));
}

void add_watermark_options(CLI::App& command, watermark_options& options, const char* group, const char* help,
                           const std::string& key_file) {
  command.add_option("--watermark", options.mark, help)->type_name("MARK")->group(group);
  command
    .add_option("--watermark-key-file", options.key_file,
                key_file + " with its secret key [the value of TROUPE_WATERMARK_KEY]")
    ->type_name("FILE")
    ->group(group);
}

} // namespace troupe::cli
