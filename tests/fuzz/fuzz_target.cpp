#include "tests/fuzz/fuzz_target.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/text/utf8.hpp"
#include "tests/test_data.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <unistd.h>

namespace troupe::test {

namespace fs = std::filesystem;

namespace {

/// A refusal without what differs from input to input: quoted texts and numbers.
std::string kind_of(std::string_view message) {
  std::string kind;
  for (std::size_t at = 0; at < message.size() && kind.size() < 100; ++at) {
    const auto c = message[at];
    if (c == '`' || c == '"' || c == '\'')
      at = std::min(message.find(c, at + 1), message.size());
    else if (!std::isdigit(static_cast<unsigned char>(c)))
      kind += c;
  }
  return kind;
}

std::string check_refusal(const failure& refusal) {
  const auto& said = refusal.what_failed();
  const auto& message = said.message;
  if (message.empty())
    broken("a refusal without a sentence");
  if (said.code == errc::internal)
    broken("an input that is taken for a bug: " + message);
  if (!is_utf8(message) || !is_utf8(said.param))
    broken("a refusal that is not UTF-8: " + message);
  return kind_of(message);
}

struct made_folder {
  fs::path path;

  made_folder() {
    std::error_code ignored;
    const fs::path memory = "/dev/shm";
    auto name = ((::access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path(ignored)) /
                 "troupe-fuzz-XXXXXX")
                  .string();
    if (!::mkdtemp(name.data()))
      broken("no temporary folder can be made");
    path = name;
  }
  ~made_folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

std::string content_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in)
    broken("there is no file " + file.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

/// From the first "=== " at the beginning of a line on; the end if there is none.
std::size_t next_part(std::string_view input, std::size_t from) {
  if (from == 0 && input.starts_with("=== "))
    return 0;
  const auto at = input.find("\n=== ", from);
  return at == input.npos ? input.size() : at + 1;
}

} // namespace

void broken(std::string_view why) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(why.size()), why.data());
  std::abort();
}

const std::vector<fuzz_target>& fuzz_targets() {
  static const auto all = [] {
    std::vector<fuzz_target> targets;
    for (const auto group :
         {weight_targets, word_targets, guide_targets, server_targets, program_targets, cache_targets})
      std::ranges::copy(group(), std::back_inserter(targets));
    return targets;
  }();
  return all;
}

const fuzz_target* find_target(std::string_view name) {
  const auto found = std::ranges::find(fuzz_targets(), name, &fuzz_target::name);
  return found == fuzz_targets().end() ? nullptr : &*found;
}

texts seeds_of(const fuzz_target& target) {
  auto seeds = target.seeds ? target.seeds() : texts();
  const auto folder = fs::path(test_data()).parent_path() / "fuzz/seeds" / target.name;
  std::vector<fs::path> files;
  if (fs::exists(folder))
    std::ranges::copy(fs::directory_iterator(folder), std::back_inserter(files));
  std::ranges::sort(files);
  for (const auto& file : files)
    seeds.push_back(content_of(file));
  if (seeds.empty())
    broken("there are no seeds for " + std::string(target.name));
  return seeds;
}

std::string run_target(const fuzz_target& target, std::string_view input) {
  // Of exactly its size, so that AddressSanitizer sees what is read behind it.
  const std::unique_ptr<char[]> copy(new char[input.size()]);
  std::ranges::copy(input, copy.get());
  std::string outcome;
  auto refusal = refusal_of([&] { outcome = target.run({copy.get(), input.size()}); });
  return refusal.empty() ? outcome : refusal;
}

std::string refusal_of(const std::function<void()>& read) {
  try {
    read();
    return {};
  } catch (const failure& f) {
    return check_refusal(f);
  }
}

std::optional<std::string_view> part_of(std::string_view input, std::string_view name) {
  for (auto at = next_part(input, 0); at < input.size();) {
    const auto line = std::min(input.find('\n', at), input.size());
    const auto begin = std::min(line + 1, input.size());
    const auto end = next_part(input, line);
    if (input.substr(at + 4, line - at - 4) == name)
      return input.substr(begin, std::max(end, begin + 1) - begin - (end < input.size()));
    at = std::max(end, begin);
  }
  return std::nullopt;
}

std::string_view first_part(std::string_view input) {
  const auto end = next_part(input, 0);
  return input.substr(0, end < input.size() && end > 0 ? end - 1 : end);
}

const fs::path& fuzz_folder() {
  static const made_folder folder;
  return folder.path;
}

fs::path fuzz_file(std::string_view name, std::string_view bytes) {
  auto file = fuzz_folder() / name;
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary | std::ios::trunc)
    .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return file;
}

std::string data_file(const fs::path& name) { return content_of(test_data() / name); }

} // namespace troupe::test
