#include "runtime/techniques/watermark/watermark.hpp"

#include "runtime/sampling/vector_passes.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace troupe::watermarks {

namespace {

/// Domains of the pseudo-random function, so that no seed is used for two things.
enum class domain : std::uint8_t { sequence = 1, sum, token, subkey };

class message {
public:
  explicit message(domain d) { bytes_[size_++] = static_cast<std::uint8_t>(d); }

  template <class T>
  message& add(T word) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      bytes_[size_++] = static_cast<std::uint8_t>(word >> (8 * i));
    return *this;
  }

  std::uint64_t hash(const hash_key& key) const { return siphash(key, {bytes_.data(), size_}); }

private:
  std::array<std::uint8_t, 1 + 8 * most_context> bytes_{};
  std::size_t size_ = 0;
};

std::uint64_t hash_of(const hash_key& key, token_id id) {
  return message(domain::token).add(static_cast<std::uint32_t>(id)).hash(key);
}

} // namespace

hash_key key_of(std::string_view secret) {
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(secret.data()), secret.size());
  return {siphash({0x74726f7570652077, 0x617465726d61726b}, bytes),
          siphash({0x6b65792064657269, 0x766174696f6e2032}, bytes)};
}

hash_key subkey(const hash_key& key, std::uint32_t number) {
  if (number == 0)
    return key;
  const auto half = [&](std::uint32_t which) { return message(domain::subkey).add(number).add(which).hash(key); };
  return {half(0), half(1)};
}

place::place(const options& of, std::span<const token_id> context) : options_(&of) {
  switch (of.context) {
    case context_kind::sequence: {
      message m(domain::sequence);
      for (const auto id : context)
        m.add(static_cast<std::uint32_t>(id));
      seed_ = m.hash(of.key);
      break;
    }
    case context_kind::sum: {
      std::uint64_t sum = 0;
      for (const auto id : context)
        sum += static_cast<std::uint32_t>(id);
      seed_ = message(domain::sum).add(sum).hash(of.key);
      break;
    }
    case context_kind::min:
      seed_ = std::numeric_limits<std::uint64_t>::max();
      for (const auto id : context)
        seed_ = std::min(seed_, hash_of(of.key, id));
      break;
    case context_kind::self:
      for (const auto id : context)
        anchors_.push_back(hash_of(of.key, id));
      break;
  }
}

std::uint64_t place::seed_for(token_id id) const {
  if (options_->context != context_kind::self)
    return seed_;
  auto least = std::numeric_limits<std::uint32_t>::max();
  std::uint64_t seed = 0;
  for (const auto anchor : anchors_)
    if (const auto v = value_of(static_cast<std::uint32_t>(id), anchor); v <= least) {
      least = v;
      seed = ~anchor;
    }
  return seed;
}

double place::uniform(token_id id) const {
  const auto seed = seed_for(id);
  const auto high = value_of(static_cast<std::uint32_t>(id), seed),
             low = value_of(static_cast<std::uint32_t>(id), std::rotl(seed, 16) ^ 0x5851f42d4c957f2d);
  return (static_cast<double>(std::uint64_t{high} << 21 | low >> 11) + 0.5) * 0x1p-53;
}

std::uint64_t place::identity(token_id id) const {
  auto h = seed_for(id) + static_cast<std::uint64_t>(static_cast<std::uint32_t>(id)) * 0x9e3779b97f4a7c15;
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93;
  return h ^ (h >> 32);
}

void place::favour_green(std::span<float> logits) const {
  const auto limit = green_limit(options_->gamma);
  if (options_->context == context_kind::self)
    sampling::add_where_least_below(logits.data(), logits.size(), anchors_.data(), anchors_.size(), limit,
                                    options_->delta);
  else
    sampling::add_where_below(logits.data(), logits.size(), seed_, limit, options_->delta);
}

std::uint32_t green_limit(float gamma) {
  return static_cast<std::uint32_t>(std::clamp(static_cast<double>(gamma) * 0x1p32, 1., 0x1p32 - 1));
}

} // namespace troupe::watermarks
