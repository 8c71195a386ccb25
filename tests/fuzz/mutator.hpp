// Changes inputs of any format at random: bytes, numbers, words of the format, parts of other inputs, and values between
// JSON's delimiters. The same seed makes the same inputs. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::test {

class mutator {
public:
  /// `kept` and `words` must outlive it; neither is empty.
  mutator(std::uint64_t seed, const std::vector<std::string>& kept, const std::vector<std::string>& words,
          std::size_t longest)
    : random_(seed), kept_(kept), words_(words), longest_(longest) {}

  /// One of those kept, changed.
  std::string next();

  /// Changes a text, which then has at most `longest` bytes.
  void mutate(std::string& text);

private:
  std::size_t below(std::size_t bound) { return bound ? random_() % bound : 0; }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }
  void change_byte(std::string& text, std::size_t at);
  void replace_number(std::string& text, std::size_t from);
  void replace_binary(std::string& text, std::size_t at);
  void copy_value(std::string& text);
  void repeat(std::string& text, std::size_t at);

  std::mt19937_64 random_;
  const std::vector<std::string>& kept_;
  const std::vector<std::string>& words_;
  std::size_t longest_;
};

/// Of JSON.
const std::vector<std::string>& json_words();

} // namespace troupe::test
