// What can be fuzzed: a table of functions over bytes, each with seeds. Shared by libFuzzer's program (libfuzzer.cpp)
// and our own (own_fuzzer.cpp). One thread.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::test {

using texts = std::vector<std::string>;

/// A function that reads what somebody else wrote. It returns what came of it in a few words; inputs that lead to new
/// words are worth keeping. It throws a `failure` that refuses the input, and calls broken() for what must never be.
struct fuzz_target {
  std::string_view name;
  std::string (*run)(std::string_view input) = nullptr;
  texts (*seeds)() = nullptr;        // null: those of seeds/NAME alone
  const texts& (*words)() = nullptr; // of the format, for the mutator; null: JSON's
};

/// All of this build.
const std::vector<fuzz_target>& fuzz_targets();

/// Null if there is none of this name.
const fuzz_target* find_target(std::string_view name);

/// Of its function and of tests/fuzz/seeds/NAME.
texts seeds_of(const fuzz_target& target);

/// Runs one input and checks what refusals promise. What came of it, without what it quotes.
std::string run_target(const fuzz_target& target, std::string_view input);

/// Says why and ends the process.
[[noreturn]] void broken(std::string_view why);

/// Checks the refusal that `read` may throw, and goes on. What came of it.
std::string refusal_of(const std::function<void()>& read);

/// A part of an input: what stands behind the line "=== NAME" up to the next such line.
std::optional<std::string_view> part_of(std::string_view input, std::string_view name);

/// What stands before the first such line.
std::string_view first_part(std::string_view input);

/// A folder of this process, in memory where the system has one there; removed at its end.
const std::filesystem::path& fuzz_folder();

/// Writes a file of that name in the folder, and returns its path.
std::filesystem::path fuzz_file(std::string_view name, std::string_view bytes);

/// The content of a file of tests/data; ends the process if it is not there.
std::string data_file(const std::filesystem::path& name);

// By what they read.
std::vector<fuzz_target> weight_targets();
std::vector<fuzz_target> cache_targets();
std::vector<fuzz_target> word_targets();
std::vector<fuzz_target> guide_targets();
std::vector<fuzz_target> server_targets();
std::vector<fuzz_target> program_targets();

} // namespace troupe::test
