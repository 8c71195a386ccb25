// Shared by the model tests: paths of data, temporary folders, and files made for one test.
#pragma once

#include "runtime/support/error.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace troupe::test {

inline std::filesystem::path data() { return test_data(); }

inline const std::vector<std::string> golden_models{"llama-gqa",   "llama-mha-tied", "llama-mqa-rope3",
                                                    "mistral-swa", "qwen2",          "qwen3"};
inline const std::vector<std::string> tiny_models{"llama-bias",     "llama-linear", "llama-dynamic", "llama-yarn",
                                                  "mistral-llama3", "qwen2-window", "qwen3-window"};

inline std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  REQUIRE_MESSAGE(in, file.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write(const std::filesystem::path& file, std::string_view text) {
  std::ofstream(file, std::ios::binary) << text;
}

/// A temporary folder, removed with its contents.
class temp_folder {
public:
  temp_folder() {
    static std::atomic<int> count = 0;
    path_ = std::filesystem::temp_directory_path() /
      ("troupe-model-test-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~temp_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  temp_folder(const temp_folder&) = delete;
  temp_folder& operator=(const temp_folder&) = delete;

  const std::filesystem::path& path() const { return path_; }

private:
  std::filesystem::path path_;
};

/// A safetensors file: the header's length, the header, `data` zero bytes.
inline std::string safetensors(std::string_view header, std::size_t data) {
  std::string file;
  for (int i = 0; i < 8; ++i)
    file += static_cast<char>(header.size() >> (8 * i));
  return file + std::string(header) + std::string(data, '\0');
}

/// The message of the `failure` that `f` throws; empty if it does not throw. Other exceptions escape.
template <class F>
std::string failure_of(F&& f) {
  try {
    f();
    return {};
  } catch (const failure& e) {
    return e.what();
  }
}

/// A list of numbers.
template <class T>
std::vector<T> list(json::value v) {
  std::vector<T> result;
  json::array items;
  REQUIRE(!v.get(items));
  for (json::value item : items) {
    double number = 0;
    REQUIRE(!item.get(number));
    result.push_back(static_cast<T>(number));
  }
  return result;
}

/// Infinity where a value of `got` is not finite.
inline double largest_difference(const std::vector<float>& got, const std::vector<float>& expected) {
  REQUIRE(got.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::isfinite(got[i]) ? std::max(worst, std::abs(double(got[i]) - expected[i])) : INFINITY;
  return worst;
}

} // namespace troupe::test
