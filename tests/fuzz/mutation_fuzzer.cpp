// Mutates connections and serves them, for compilers without libFuzzer. Inputs that produce new replies join the
// corpus. The same seed makes the same inputs. An input that breaks something is written to a file.
//   troupe_connection_fuzz SECONDS [SEED]
//   troupe_connection_fuzz FILE...          serves these inputs and prints the replies
#include "tests/api/server/drive_connection.hpp"
#include "tests/fuzz/connection_seeds.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <unordered_set>

extern "C" void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));

namespace {

using namespace troupe::test;

constexpr std::size_t longest_text = 70'000; // slightly above the limits of drive_connection()
constexpr std::size_t most_kept = 4096;
constexpr unsigned longest_seconds = 60; // per input

std::string current;
std::string crash_file;

/// Async-signal-safe.
void leave_input() {
  const int file = ::open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0)
    return;
  if (::write(file, current.data(), current.size()) == static_cast<ssize_t>(current.size())) {
    constexpr std::string_view said = "the input is in ";
    (void)!::write(2, said.data(), said.size());
    (void)!::write(2, crash_file.data(), crash_file.size());
    (void)!::write(2, "\n", 1);
  }
  ::close(file);
}

void on_signal(int number) {
  leave_input();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

class mutator {
public:
  explicit mutator(std::uint64_t seed) : random_(seed), kept_(connection_seeds()) {}

  const std::vector<connection_script>& kept() const { return kept_; }
  void keep(connection_script script) {
    if (kept_.size() < most_kept)
      kept_.push_back(std::move(script));
  }

  connection_script next() {
    auto script = pick(kept_);
    for (auto left = 1 + below(4); left > 0; --left)
      mutate(script);
    if (below(5) == 0) { // raw mutation: wrong lengths, heads cut anywhere
      auto bytes = script.bytes().substr(1);
      mutate(bytes);
      script.parts = {{connection_part::kind::bytes, std::move(bytes), {}}};
    }
    return script;
  }

private:
  std::size_t below(std::size_t bound) { return bound ? random_() % bound : 0; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }
  std::string& text_of(connection_part& part) { return part.head.empty() || below(3) ? part.body : part.head; }

  void mutate(connection_script& script) {
    auto& parts = script.parts;
    switch (below(12)) {
      case 0: script.habit = static_cast<unsigned char>(below(128)); return;
      case 1: parts.insert(parts.begin() + static_cast<long>(below(parts.size() + 1)), pick(pick(kept_).parts)); break;
      case 2: parts.erase(parts.begin() + static_cast<long>(below(parts.size()))); break;
      case 3: std::swap(parts[below(parts.size())], parts[below(parts.size())]); break;
      case 4: parts[below(parts.size())].how = static_cast<connection_part::kind>(below(5)); break;
      case 5: parts.push_back({connection_part::kind::wait, {}, {}}); break;
      default: mutate(text_of(parts[below(parts.size())]));
    }
    if (parts.empty() || parts.size() > 40)
      parts = pick(connection_seeds()).parts;
  }

  void mutate(std::string& text) {
    for (auto left = 1 + below(3); left > 0; --left)
      mutate_once(text);
    text.resize(std::min(text.size(), longest_text));
  }

  void mutate_once(std::string& text) {
    const auto at = below(text.size() + 1);
    const auto count = std::min(text.size() - at, std::size_t(1) << below(10));
    switch (below(10)) {
      case 0:
        if (at < text.size())
          text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1: text.insert(at, 1, static_cast<char>(below(256))); break;
      case 2: text.insert(at, pick(connection_words())); break;
      case 3: text.replace(at, std::min(count, std::size_t(8)), pick(connection_words())); break;
      case 4: text.erase(at, count); break;
      case 5: text.insert(at, text.substr(below(text.size() + 1), count)); break;
      case 6: {
        auto other = pick(pick(kept_).parts);
        const auto& from = text_of(other);
        text.insert(at, from.substr(below(from.size() + 1), count));
        break;
      }
      case 7: replace_number(text, at); break;
      case 8: copy_value(text); break;
      default: {
        const auto one = text.substr(at, 1 + below(8));
        for (auto left = std::size_t(1) << below(9); left > 0 && text.size() < longest_text; --left)
          text.insert(at, one);
      }
    }
  }

  void replace_number(std::string& text, std::size_t from) {
    static const std::vector<std::string> numbers{"0",
                                                  "1",
                                                  "2",
                                                  "17",
                                                  "64",
                                                  "127",
                                                  "128",
                                                  "255",
                                                  "65536",
                                                  "-1",
                                                  "1e-9",
                                                  "1e9",
                                                  "4294967296",
                                                  "18446744073709551616",
                                                  "0.30000000000000004"};
    const auto digits = "0123456789";
    const auto begin = text.find_first_of(digits, from);
    if (begin == text.npos)
      return;
    const auto end = std::min(text.find_first_not_of(digits, begin), text.size());
    text.replace(begin, end - begin, pick(numbers));
  }

  /// Copies the text between two JSON delimiters behind a third: duplicates and moves values, members and lists.
  void copy_value(std::string& text) {
    const auto mark = [&] { return std::min(text.find_first_of(",:[]{}\"", below(text.size() + 1)), text.size()); };
    auto begin = mark(), end = mark();
    if (begin > end)
      std::swap(begin, end);
    const auto copied = text.substr(begin, end - begin);
    text.insert(mark(), copied);
  }

  std::mt19937_64 random_;
  std::vector<connection_script> kept_;
};

/// The statuses and error texts of the replies. The corpus keeps one input for each.
std::size_t kind_of(const std::string& received) {
  std::string kind;
  for (const std::string_view mark : {"HTTP/1.1 ", "\"message\":\"", "\"type\":\"", "\"param\":\""})
    for (auto at = received.find(mark); at != received.npos && kind.size() < 400; at = received.find(mark, at + 1)) {
      const auto text = received.substr(at + mark.size(), 60);
      kind += text.substr(0, text.find_first_of("\"`\r\\"));
    }
  return std::hash<std::string>()(kind);
}

driven_connection serve(std::string input) {
  current = std::move(input);
  ::alarm(longest_seconds);
  auto driven = drive_connection(current);
  ::alarm(0);
  if (driven.fault.empty())
    return driven;
  std::fprintf(stderr, "%s\n", driven.fault.c_str());
  std::abort();
}

int replay(int count, char** files) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file(files[i], std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    crash_file = std::string(files[i]) + ".again";
    std::printf("%s: %zu bytes\n%s\n", files[i], input.size(), serve(input).received.c_str());
  }
  return 0;
}

} // namespace

int main(int count, char** arguments) {
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM})
    ::signal(number, on_signal);
  if (__sanitizer_set_death_callback)
    __sanitizer_set_death_callback(leave_input);
  char* end = nullptr;
  const auto limit = std::chrono::seconds(count > 1 ? std::strtoul(arguments[1], &end, 10) : 0);
  if (count < 2 || *end)
    return replay(count - 1, arguments + 1);

  const std::uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
  crash_file = "connection-fuzz-" + std::to_string(seed) + ".input";
  mutator inputs(seed);
  std::unordered_set<std::size_t> seen;
  for (const auto& script : connection_seeds())
    seen.insert(kind_of(serve(script.bytes()).received));
  std::uint64_t executions = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (; std::chrono::steady_clock::now() - begin < limit; ++executions) {
    auto script = inputs.next();
    if (seen.insert(kind_of(serve(script.bytes()).received)).second)
      inputs.keep(std::move(script));
  }
  std::printf("seed %llu: %llu connections served in %lld s, %zu kinds of replies, nothing broke\n",
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(executions),
              static_cast<long long>(limit.count()), seen.size());
  return 0;
}
