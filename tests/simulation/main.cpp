// troupe_simulation: runs simulations of the engine by their seeds.
#include "runtime/scheduling/prefix_salt.hpp"
#include "tests/simulation/templates.hpp"
#include "tests/simulation/world.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>

#include <ctime>

using namespace troupe;
using namespace troupe::simulation;

namespace {

constexpr auto usage =
  "usage: troupe_simulation --seed N [--refuse] [--quiet]            replays one schedule, with its trace\n"
  "       troupe_simulation [--schedules N] [--seconds S] [--from N] [--keep-on] [--coverage FILE] [--report]\n"
  "--refuse: allocations are refused where a seed has it so.\n"
  "--seconds: of CPU time. --from: the first seed; by default the clock chooses it. --keep-on: after a failure, too.\n"
  "--coverage: what was exercised is added to the file's. --gaps: messages that nobody handles must be named in this "
  "file,\n"
  "and those that it names must not be handled: it only ever shrinks. From 5000 schedules on.\n";

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct arguments {
  std::optional<std::uint64_t> seed, from, schedules;
  double seconds = 0;
  bool refuse = false, quiet = false, keep_on = false, report = false;
  std::string coverage_file, gaps_file;
};

std::optional<arguments> parse(int argc, char** argv) {
  arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const bool has_value = i + 1 < argc;
    if (flag == "--quiet")
      a.quiet = true;
    else if (flag == "--refuse")
      a.refuse = true;
    else if (flag == "--keep-on")
      a.keep_on = true;
    else if (flag == "--report")
      a.report = true;
    else if (flag == "--seed" && has_value)
      a.seed = std::stoull(argv[++i]);
    else if (flag == "--from" && has_value)
      a.from = std::stoull(argv[++i]);
    else if (flag == "--schedules" && has_value)
      a.schedules = std::stoull(argv[++i]);
    else if (flag == "--seconds" && has_value)
      a.seconds = std::stod(argv[++i]);
    else if (flag == "--coverage" && has_value)
      a.coverage_file = argv[++i];
    else if (flag == "--gaps" && has_value)
      a.gaps_file = argv[++i];
    else
      return std::nullopt;
  }
  return a;
}

scenario chosen(std::uint64_t seed, const arguments& a) {
  auto s = scenario_of(seed);
  if (!a.refuse)
    s.refusal_every = 0;
  return s;
}

int replay(const arguments& a) {
  const auto s = chosen(*a.seed, a);
  for (const auto& c : s.clients) // so that these are no part of the trace
    static_cast<void>(simulate(calm_scenario(c.request, s.recurrent, s.stages, s.first_version), false, nullptr));
  std::setvbuf(stdout, nullptr, _IOLBF, 0); // also before a crash
  std::printf("%s\n", s.describe().c_str());
  const auto result = simulate(s, !a.quiet, nullptr);
  std::printf("%s, %llu jobs, %llu messages, %llu deaths, %llu answers\n",
              result.trouble.empty() ? "all is well" : ("FAILED: " + result.trouble).c_str(),
              static_cast<unsigned long long>(result.jobs), static_cast<unsigned long long>(result.messages),
              static_cast<unsigned long long>(result.deaths), static_cast<unsigned long long>(result.answers));
  return result.trouble.empty() ? 0 : 1;
}

/// What is unlike the file; empty: nothing.
std::string check_gaps(const coverage& covered, const std::string& file) {
  std::ifstream from(file);
  if (!from)
    return "there is no " + file;
  std::set<std::string> listed;
  for (std::string line; std::getline(from, line);)
    if (!line.empty() && line.front() != '#')
      listed.insert(line);
  std::string text;
  for (const auto& gap : covered.unhandled())
    if (listed.erase(gap) == 0)
      text += "nobody has handled " + gap + "\n";
  for (const auto& gap : listed)
    text += "strike it out, it is handled: " + gap + "\n";
  return text;
}

std::uint64_t now_running = 0;

/// Where an exception that nobody takes ends the process, its seed is told first.
void tell_seed_at_the_end() {
  std::set_terminate([] {
    std::printf("seed %llu FAILED: the process ends\n", static_cast<unsigned long long>(now_running));
    std::fflush(stdout);
    std::abort();
  });
}

int run_many(const arguments& a) {
  tell_seed_at_the_end();
  const auto from = a.from.value_or(std::random_device()() * std::uint64_t(1'000'000));
  const auto most = a.schedules.value_or(a.seconds > 0 ? std::numeric_limits<std::uint64_t>::max() : 1000);
  coverage covered;
  if (std::ifstream known(a.coverage_file); known)
    covered.load(known);
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(from));
  std::fflush(stdout);
  std::uint64_t run = 0, failed = 0, jobs = 0, messages = 0, deaths = 0, answers = 0;
  for (; run < most && (a.seconds == 0 || cpu_seconds() < a.seconds); ++run) {
    const auto s = chosen(now_running = from + run, a);
    const auto result = simulate(s, false, &covered);
    jobs += result.jobs;
    messages += result.messages;
    deaths += result.deaths;
    answers += result.answers;
    if (result.trouble.empty())
      continue;
    ++failed;
    std::printf("seed %llu (schedule %llu) FAILED: %s\n  troupe_simulation --seed %llu%s shows it\n",
                static_cast<unsigned long long>(s.seed), static_cast<unsigned long long>(run + 1),
                result.trouble.c_str(), static_cast<unsigned long long>(s.seed), a.refuse ? " --refuse" : "");
    std::fflush(stdout);
    if (!a.keep_on) {
      ++run;
      break;
    }
  }
  std::printf("%llu schedules, %llu failed, %llu jobs, %llu messages, %llu deaths, %llu answers, %.1f s of CPU\n",
              static_cast<unsigned long long>(run), static_cast<unsigned long long>(failed),
              static_cast<unsigned long long>(jobs), static_cast<unsigned long long>(messages),
              static_cast<unsigned long long>(deaths), static_cast<unsigned long long>(answers), cpu_seconds());
  if (!a.coverage_file.empty()) {
    std::ofstream to(a.coverage_file);
    covered.save(to);
  }
  if (a.report)
    covered.report(std::cout);
  const auto gaps = a.gaps_file.empty() || run < 5000 ? std::string() : check_gaps(covered, a.gaps_file);
  std::fputs(gaps.c_str(), stdout);
  return failed == 0 && gaps.empty() ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) {
  const auto a = parse(argc, argv);
  if (!a) {
    std::fputs(usage, stderr);
    return 2;
  }
  set_client_salt_secret({1, 2}); // not this process's: a seed is the same in all
  return a->seed ? replay(*a) : run_many(*a);
}
