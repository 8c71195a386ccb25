#include "runtime/support/files/checksum.hpp"

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <vector>

using troupe::checksum;

namespace {

std::vector<std::byte> noise(std::size_t bytes) {
  std::mt19937 random(1);
  std::vector<std::byte> result(bytes);
  for (auto& b : result)
    b = static_cast<std::byte>(random());
  return result;
}

std::uint64_t sum_of(std::span<const std::byte> bytes) {
  checksum sum;
  sum.add(bytes);
  return sum.value();
}

} // namespace

TEST_CASE("A checksum is the same in one piece, in pieces and by chunks, and across processes") {
  for (const std::size_t bytes : {std::size_t(1), std::size_t(64), std::size_t(191), checksum::chunk - 1,
                                  checksum::chunk, checksum::chunk + 1, 3 * checksum::chunk + 128}) {
    CAPTURE(bytes);
    const auto data = noise(bytes);
    const std::span all(data);
    const auto expected = sum_of(all);
    for (const std::size_t piece : {std::size_t(64), std::size_t(641), checksum::chunk / 2 + 1, bytes}) {
      checksum sum;
      for (std::size_t at = 0; at < bytes; at += piece)
        sum.add(all.subspan(at, std::min(piece, bytes - at)));
      CHECK(sum.value() == expected);
    }
    checksum chunks;
    for (std::size_t at = 0; at < bytes; at += checksum::chunk)
      chunks.add_chunk(checksum::of_chunk(all.subspan(at, std::min(checksum::chunk, bytes - at))));
    CHECK(chunks.value() == expected);
  }
  std::vector<std::byte> counted(128);
  for (std::size_t i = 0; i < counted.size(); ++i)
    counted[i] = static_cast<std::byte>(i);
  CHECK(sum_of(counted) == 0xd82a7e51e8bd8cb3); // stored in files, so it must never change
}

TEST_CASE("A checksum distinguishes every bit, and every length of zeros") {
  auto data = noise(1024);
  std::set<std::uint64_t> sums{sum_of(data)};
  for (std::size_t bit = 0; bit < 8 * data.size(); ++bit) {
    const auto mask = static_cast<std::byte>(1 << bit % 8);
    data[bit / 8] ^= mask;
    sums.insert(sum_of(data));
    data[bit / 8] ^= mask;
  }
  CHECK(sums.size() == 8 * data.size() + 1);
  std::set<std::uint64_t> zeros;
  for (std::size_t bytes = 0; bytes <= 4096; ++bytes)
    zeros.insert(sum_of(std::vector<std::byte>(bytes)));
  CHECK(zeros.size() == 4097);
}
