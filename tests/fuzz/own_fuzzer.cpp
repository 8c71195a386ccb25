// Fuzzes without libFuzzer. Inputs that lead to new outcomes join the corpus; the same seed makes the same inputs. An
// input that breaks something is written to a file.
//   troupe_fuzz SECONDS [NAME]...        all targets, or these: the seeds, then so many seconds of CPU of mutations each;
//                                        what came of these is listed
//   troupe_fuzz NAME FILE...             what comes of these inputs
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/fuzz/mutator.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <unordered_set>

extern "C" void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));

namespace {

using namespace troupe::test;

constexpr std::size_t longest_input = 70'000; // slightly above the limits of drive_connection()
constexpr std::size_t most_kept = 4096;
constexpr long longest_seconds = 30; // of CPU per input, which sanitizers multiply

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

void limit_time(long seconds) {
  const itimerval limit{{0, 0}, {seconds, 0}};
  ::setitimer(ITIMER_PROF, &limit, nullptr);
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::string run(const fuzz_target& target, const std::string& input) {
  current = input;
  limit_time(longest_seconds);
  auto outcome = run_target(target, current);
  limit_time(0);
  return outcome;
}

void fuzz(const fuzz_target& target, double seconds, bool lists) {
  crash_file = "fuzz-" + std::string(target.name) + ".input";
  const auto begin = cpu_seconds();
  auto kept = seeds_of(target);
  const auto seeds = kept.size();
  std::unordered_set<std::string> seen;
  for (const auto& seed : kept)
    seen.insert(run(target, seed));
  const auto replayed = cpu_seconds() - begin;
  mutator inputs(1, kept, target.words ? target.words() : json_words(), longest_input);
  std::size_t executions = 0;
  for (const auto start = cpu_seconds(); seconds > 0 && cpu_seconds() - start < seconds; ++executions) {
    auto input = inputs.next();
    if (seen.insert(run(target, input)).second && kept.size() < most_kept)
      kept.push_back(std::move(input));
  }
  std::printf("%-16.*s %4zu seeds in %4.1f s, then %6zu inputs, %4zu outcomes\n", static_cast<int>(target.name.size()),
              target.name.data(), seeds, replayed, executions, seen.size());
  for (const auto& outcome : seen)
    if (lists)
      std::printf("  %s\n", outcome.c_str());
  std::fflush(stdout);
}

int replay(const fuzz_target& target, int count, char** files) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file(files[i], std::ios::binary);
    crash_file = std::string(files[i]) + ".again";
    std::printf("%s: %s\n", files[i], run(target, {std::istreambuf_iterator<char>(file), {}}).c_str());
  }
  return 0;
}

} // namespace

int main(int count, char** arguments) {
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF})
    ::signal(number, on_signal);
  if (__sanitizer_set_death_callback)
    __sanitizer_set_death_callback(leave_input);
  if (count > 1)
    if (const auto* target = find_target(arguments[1]))
      return replay(*target, count - 2, arguments + 2);
  const auto seconds = count > 1 ? std::strtod(arguments[1], nullptr) : 0;
  for (int i = 2; i < count; ++i)
    if (!find_target(arguments[i]))
      broken("there is no target " + std::string(arguments[i]));
  for (const auto& target : fuzz_targets())
    if (count <= 2 || std::find(arguments + 2, arguments + count, target.name) != arguments + count)
      fuzz(target, seconds, count > 2);
  return 0;
}
