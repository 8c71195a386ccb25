// libFuzzer's entry points: troupe_fuzz NAME [libFuzzer's arguments]. Its mutations and ours take turns.
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/fuzz/mutator.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

using namespace troupe::test;

const fuzz_target* chosen = nullptr;

/// Ours: what the seeds are made of.
const std::vector<std::string>& seeds() {
  static const auto all = seeds_of(*chosen);
  return all;
}

} // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  if (*count > 1)
    chosen = find_target((*arguments)[1]);
  if (!chosen) {
    std::fprintf(stderr, "troupe_fuzz NAME [libFuzzer's arguments]\ntroupe_fuzz NAME seeds FOLDER\n\n");
    for (const auto& target : fuzz_targets())
      std::fprintf(stderr, "%s\n", std::string(target.name).c_str());
    std::exit(1);
  }
  if (*count == 4 && std::strcmp((*arguments)[2], "seeds") == 0) { // to begin a corpus
    std::size_t number = 0;
    for (const auto& seed : seeds())
      std::ofstream(std::string((*arguments)[3]) + "/seed-" + std::to_string(number++), std::ios::binary) << seed;
    std::exit(0);
  }
  std::copy(*arguments + 2, *arguments + *count, *arguments + 1);
  --*count;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  run_target(*chosen, {reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  if (seed % 2 == 0)
    return LLVMFuzzerMutate(data, size, most);
  std::string text(reinterpret_cast<const char*>(data), size);
  mutator(seed, seeds(), chosen->words ? chosen->words() : json_words(), most).mutate(text);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
