#include "runtime/engine/loading/replica_roles.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>

namespace troupe {

namespace {

constexpr int most_replicas = 1024;

[[noreturn]] void refuse(const std::string& why) { throw failure(errc::bad_request, why, "roles"); }

/// The number behind a name.
int count_of(std::string_view part, std::string_view name, std::string_view digits) {
  int count = 0;
  const auto* end = digits.data() + digits.size();
  const auto [stop, problem] = std::from_chars(digits.data(), end, count);
  if (problem != std::errc() || stop != end || count < 1 || count > most_replicas)
    refuse("`roles` needs a number from 1 to " + std::to_string(most_replicas) + " behind `" + std::string(name) +
           ":`, not `" + std::string(part) + "`");
  return count;
}

std::vector<replica_role> parse(std::string_view text) {
  std::array<int, 2> counts{}; // prefill, decode
  constexpr std::array<std::string_view, 2> names{"prefill", "decode"};
  for (auto rest = text; !rest.empty();) {
    const auto part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    const auto name = part.substr(0, part.find(':'));
    const auto known = std::ranges::find(names, name);
    if (known == names.end())
      refuse("`roles` are prefill and decode, as in prefill:1,decode:1; there is no role `" + std::string(name) + "`");
    auto& count = counts[static_cast<std::size_t>(known - names.begin())];
    if (count > 0)
      refuse("`roles` names " + std::string(name) + " twice");
    count = count_of(part, name, part.size() > name.size() ? part.substr(name.size() + 1) : std::string_view());
  }
  for (std::size_t i = 0; i < names.size(); ++i)
    if (counts[i] == 0)
      refuse("`roles` needs at least one replica for each role, as in prefill:1,decode:1; there is none for " +
             std::string(names[i]));
  std::vector<replica_role> roles(static_cast<std::size_t>(counts[0]), replica_role::prefill);
  roles.insert(roles.end(), static_cast<std::size_t>(counts[1]), replica_role::decode);
  return roles;
}

} // namespace

std::vector<replica_role> replica_roles(const engine_options& options) {
  if (options.roles.empty())
    return std::vector<replica_role>(static_cast<std::size_t>(std::max(1, options.replicas)), replica_role::any);
  if (options.replicas != 1)
    refuse("`roles` already says how many replicas there are: leave out `replicas`");
  if (!options.prefix_cache)
    refuse("`roles` needs the prefix cache, in which the blocks of prompts arrive, but it is off");
  return parse(options.roles);
}

int replica_count(const engine_options& options) { return static_cast<int>(replica_roles(options).size()); }

} // namespace troupe
