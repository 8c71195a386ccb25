// What K and V of a sequence depend on beside its tokens, as a number: sequences of different salts never share blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace troupe {

/// 0: on nothing else.
using prefix_salt = std::uint64_t;

/// The number of sequences that a model beside the engine's computes, too (technique::run_beside), and has K and V of.
/// Beyond those of other techniques.
inline constexpr std::uint64_t second_salt = std::uint64_t{1} << 62;

/// Below the numbers of rotations other than the first one, by which sequences beyond a border of LongRoPE have K.
inline constexpr std::uint64_t rotation_salt = std::uint64_t{1} << 61;

/// The number of a client's own text that separates its prefixes from others' (vLLM's `cache_salt`); 0 for an empty
/// one. Nobody can choose texts that have a certain number, as it depends on a secret of this process.
std::uint64_t client_salt(std::string_view text);

/// A checksum of values that K and V depend on, fed piece by piece in a fixed order.
class value_sum {
public:
  void add(std::span<const float> values);
  void add(std::uint64_t number);

  /// Never 0.
  std::uint64_t value() const { return sum_ | 1; }

private:
  std::uint64_t sum_ = 0;
};

/// The number of values with that sum; 0 for 0. Kinds of values are kept apart, and from texts of clients.
std::uint64_t value_salt(std::string_view kind, std::uint64_t sum);

/// Makes the secret that of all processes which keep prefixes in one place. Before requests are served.
void set_client_salt_secret(const std::array<std::uint64_t, 2>& secret);

/// `salt`, and something else that has a number; its 0 changes nothing. Feed each kind of thing in a fixed order.
/// Distinct from the ids of cached blocks, which count from 1.
constexpr prefix_salt salted(prefix_salt salt, std::uint64_t number) {
  if (number == 0)
    return salt;
  // splitmix64's finaliser (Steele, Lea, Flood 2014)
  auto h = salt * 0x9e3779b97f4a7c15 + number;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return (h ^ (h >> 31)) | std::uint64_t{1} << 63;
}

} // namespace troupe
