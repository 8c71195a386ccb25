#include "api/hub/pull.hpp"

#include "runtime/import/hub_cache.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/text/ascii.hpp"

#include <algorithm>
#include <cstdlib>

namespace troupe::hub {

namespace {

namespace fs = std::filesystem;

constexpr file_kind token_file{"a token", 4096};

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string stripped(std::string text) {
  constexpr auto blanks = " \t\r\n";
  text.erase(std::min(text.find_last_not_of(blanks) + 1, text.size()));
  text.erase(0, std::min(text.find_first_not_of(blanks), text.size()));
  return text;
}

std::string token_of_user() {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (auto token = stripped(setting(name)); !token.empty())
      return token;
  fs::path file = setting("HF_TOKEN_PATH");
  if (file.empty()) {
    const auto home = setting("HF_HOME"), caches = setting("XDG_CACHE_HOME");
    file = (!home.empty()
              ? fs::path(home)
              : (caches.empty() ? fs::path(setting("HOME")) / ".cache" : fs::path(caches)) / "huggingface") /
      "token";
  }
  return is_there(file) ? stripped(read_file(file, token_file)) : std::string();
}

} // namespace

pull_options options_of_environment() {
  const auto offline = ascii_lower(setting("HF_HUB_OFFLINE"));
  if (offline == "1" || offline == "true" || offline == "yes" || offline == "on")
    throw failure(errc::unavailable, "HF_HUB_OFFLINE is set, which forbids the network");
  pull_options options;
  options.endpoint = stripped(setting("HF_ENDPOINT"));
  while (options.endpoint.ends_with('/'))
    options.endpoint.pop_back();
  if (options.endpoint.empty())
    options.endpoint = "https://huggingface.co";
  try {
    parse_url(options.endpoint);
  } catch (const failure& e) {
    throw failure(errc::bad_request, std::string("HF_ENDPOINT: ") + e.what());
  }
  options.token = token_of_user();
  if (!std::ranges::all_of(options.token, [](unsigned char c) { return c > ' ' && c < 0x7f; }))
    throw failure(errc::bad_request, "the token for the hub has characters that a token cannot have");
  options.cache = hub_cache();
  return options;
}

} // namespace troupe::hub
