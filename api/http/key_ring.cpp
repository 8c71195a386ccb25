#include "api/http/key_ring.hpp"

#include "api/http/access.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr auto between_checks = std::chrono::seconds(1);
constexpr std::size_t longest_name = 64;
constexpr file_kind key_file{"a file of API keys", std::size_t(1) << 20};

std::string_view trimmed(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= longest_name && std::ranges::all_of(text, [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
      c == '.' || c == '@';
  });
}

/// Visible ASCII, as headers can carry it.
bool is_key(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return c > ' ' && c < 0x7f; });
}

std::vector<key_ring::named_key> numbered(const std::vector<std::string>& keys) {
  std::vector<key_ring::named_key> result;
  for (const auto& key : keys)
    result.push_back({"key-" + std::to_string(result.size() + 1), key});
  return result;
}

} // namespace

std::vector<key_ring::named_key> read_keys(const std::filesystem::path& file) {
  const auto text = read_file(file, key_file);
  std::vector<key_ring::named_key> result;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto line = trimmed(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty() || line.starts_with('#'))
      continue;
    const auto refuse = [&](const std::string& why) {
      throw failure(errc::bad_file, file.string() + ": line " + std::to_string(number) + ": " + why);
    };
    const auto equals = line.find('=');
    if (equals == line.npos)
      refuse("a line must be `name=key`");
    const auto name = trimmed(line.substr(0, equals)), key = trimmed(line.substr(equals + 1));
    if (!is_name(name))
      refuse("a name must have 1 to " + std::to_string(longest_name) + " letters, digits and any of -_.@");
    if (!is_key(key))
      refuse("a key must be visible ASCII characters without spaces");
    for (const auto& other : result)
      if (other.key == key && other.name != name)
        refuse("this is also the key of " + other.name);
    result.push_back({std::string(name), std::string(key)});
  }
  return result;
}

std::string read_key(const std::filesystem::path& file) {
  const auto text = read_file(file, key_file);
  const auto key = trimmed(text);
  if (!is_key(key))
    throw failure(errc::bad_file, file.string() + " must hold one key: visible ASCII characters without spaces");
  return std::string(key);
}

key_ring::key_ring(const std::vector<std::string>& unnamed, std::filesystem::path file, listener tell)
  : tell_(std::move(tell)) {
  replace(unnamed, std::move(file));
}

void key_ring::replace(const std::vector<std::string>& unnamed, std::filesystem::path file,
                       const std::function<void(bool open)>& then) {
  auto given = numbered(unnamed);
  const auto version = file.empty() ? std::nullopt : version_of(file);
  auto of_file = file.empty() ? std::vector<named_key>() : read_keys(file);
  if (then)
    then(given.empty() && file.empty());
  const std::lock_guard lock(mutex_);
  for (const auto& one : given)
    number_of(one.name);
  unnamed_ = std::move(given);
  file_ = std::move(file);
  of_file_ = std::move(of_file);
  version_ = version;
  checked_ = file_.empty() ? clock::time_point() : clock::now();
}

bool key_ring::is_open() const {
  const std::lock_guard lock(mutex_);
  return nobody_needs_one();
}

std::optional<key_ring::version> key_ring::version_of(const std::filesystem::path& file) {
  try {
    const auto found = state_of(file);
    return version{found.bytes, found.modified_ns, found.changed_ns};
  } catch (const failure&) { // reading it tells why
    return std::nullopt;
  }
}

void key_ring::read_again(clock::time_point now) {
  if (file_.empty() || now - checked_ < between_checks)
    return;
  checked_ = now;
  const auto found = version_of(file_);
  if (found == version_)
    return;
  version_ = found; // a file that cannot be read is told of once
  std::string why_not;
  try {
    of_file_ = read_keys(file_);
  } catch (const failure& f) {
    why_not = f.what();
  }
  if (tell_)
    tell_(of_file_.size(), why_not);
}

std::size_t key_ring::number_of(const std::string& name) {
  return numbers_.try_emplace(name, numbers_.size() + 1).first->second;
}

key_ring::owner key_ring::named(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (nobody_needs_one())
    return {};
  return {number_of(name), name};
}

std::optional<key_ring::owner> key_ring::find(std::string_view authorization, clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (nobody_needs_one())
    return owner{};
  read_again(now);
  const auto token = bearer_token(authorization);
  if (!token)
    return std::nullopt;
  const named_key* found = nullptr;
  for (const auto* keys : {&unnamed_, &of_file_})
    for (const auto& one : *keys) // all of them, so that the time does not tell which
      if (same_in_constant_time(*token, one.key))
        found = &one;
  if (!found)
    return std::nullopt;
  return owner{number_of(found->name), found->name};
}

} // namespace troupe
