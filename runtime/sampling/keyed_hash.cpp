#include "runtime/sampling/keyed_hash.hpp"

#include <cstddef>

namespace troupe::keyed {

namespace {

struct sip_state {
  std::uint64_t a, b, c, d;

  void round() {
    a += b, c += d;
    b = std::rotl(b, 13) ^ a, d = std::rotl(d, 16) ^ c;
    a = std::rotl(a, 32);
    c += b, a += d;
    b = std::rotl(b, 17) ^ c, d = std::rotl(d, 21) ^ a;
    c = std::rotl(c, 32);
  }

  void take(std::uint64_t word) {
    d ^= word;
    round(), round();
    a ^= word;
  }
};

} // namespace

std::uint64_t siphash(const hash_key& key, std::span<const std::uint8_t> bytes) {
  sip_state s{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
              key[1] ^ 0x7465646279746573};
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    word |= std::uint64_t{bytes[i]} << (i % 8 * 8);
    if (i % 8 == 7) {
      s.take(word);
      word = 0;
    }
  }
  s.take(word | std::uint64_t{bytes.size()} << 56);
  s.c ^= 0xff;
  for (int i = 0; i < 4; ++i)
    s.round();
  return s.a ^ s.b ^ s.c ^ s.d;
}

} // namespace troupe::keyed
