// Watermarks. A secret key and the last generated tokens decide which tokens become a little likelier (green lists), or
// which one is drawn (Gumbel). A holder of the key can tell from a text alone that it was generated. A plain value,
// shared by copies of a request's parameters. The key is a secret: no message, log or answer may hold it.
#pragma once

#include "runtime/sampling/keyed_hash.hpp"
#include "runtime/support/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::watermarks {

enum class kind : std::uint8_t {
  green, // Kirchenbauer et al. 2023: a share gamma of the vocabulary gains delta
  gumbel // Aaronson 2022, exponential minimum: the token with the least -log(u) / p; the distribution stays
};

/// What a place's tokens depend on. Kirchenbauer et al. 2024 ("On the reliability of watermarks") compare them.
enum class context_kind : std::uint8_t {
  sequence, // the tokens before it, in order
  sum,      // their sum; with one token: lefthash
  min,      // the one with the least hash
  self      // of them, the one with the least hash together with the token itself: selfhash
};

inline constexpr int most_context = 8;
inline constexpr float most_delta = 20;
inline constexpr std::size_t most_key_bytes = 1024;

using keyed::hash_key;
using keyed::siphash;
using keyed::value_of;

/// The key that a secret text stands for.
hash_key key_of(std::string_view secret);

/// Answers to one prompt would be much alike if one key chose all their tokens. So Gumbel marks each by one of so many
/// keys, which follow from the secret one: its own, and others.
inline constexpr std::uint32_t subkeys = 64;
hash_key subkey(const hash_key& key, std::uint32_t number);

struct options {
  kind what = kind::green;
  context_kind context = context_kind::sum;
  int width = 1;      // tokens before a place that it depends on, 1 to most_context
  float gamma = .25f; // of green lists: within (0, 1)
  float delta = 2;    // in logits, before the temperature; at most most_delta either way
  hash_key key{};
};

/// The values that `context`, the `width` tokens before a place, gives each token that may follow.
class place {
public:
  place(const options& of, std::span<const token_id> context);

  /// Uniform over 32-bit words.
  std::uint32_t value(token_id id) const { return value_of(static_cast<std::uint32_t>(id), seed_for(id)); }

  /// Within (0, 1), of 53 bits.
  double uniform(token_id id) const;

  /// Equal for equal arguments of the pseudo-random function: a text may have each but once in its statistics.
  std::uint64_t identity(token_id id) const;

  /// The seed of all tokens; only without context_kind::self.
  std::uint64_t seed() const { return seed_; }

  /// Adds delta to the logits of green tokens.
  void favour_green(std::span<float> logits) const;

private:
  std::uint64_t seed_for(token_id id) const;

  const options* options_;
  std::uint64_t seed_ = 0;
  std::vector<std::uint64_t> anchors_; // of context_kind::self: a seed of each token
};

/// The largest value of a green token, plus one.
std::uint32_t green_limit(float gamma);

} // namespace troupe::watermarks
