// A subcommand of `troupe`: its options and its action. Each is made in a file of its own in commands/;
// command_line.cpp puts them together.
#pragma once

#include "runtime/support/error.hpp"

#include <functional>
#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace troupe::cli {

/// Exit statuses, beside 0.
inline constexpr int failed = 1, usage_error = 2, interrupted = 130, broken_pipe = 141;

/// The command line is wrong: what it asks for can be refused without loading a model. The exit status is usage_error.
class usage_failure : public failure {
public:
  explicit usage_failure(std::string what) : failure(errc::bad_request, std::move(what)) {}
};

/// Calls `check`, whose failure(bad_request) becomes a usage_failure.
template <class F>
auto checked_usage(const F& check) {
  try {
    return check();
  } catch (const failure& e) {
    if (e.what_failed().code == errc::bad_request)
      throw usage_failure(e.what());
    throw;
  }
}

struct command {
  CLI::App* options = nullptr;      // receives the arguments
  std::function<int()> run;         // called after parsing; returns the exit status, throws failure
  std::shared_ptr<void> given = {}; // what they are parsed into, for who reads the command line again
};

/// The command line of this run, read again with its configuration file as that is now.
struct read_again {
  std::shared_ptr<const void> owner; // of the rest
  const CLI::App* options = nullptr;
  std::shared_ptr<void> given;
};
/// Throws failure.
using reader = std::function<read_again()>;

command add_run(CLI::App& troupe);
command add_chat(CLI::App& troupe);
command add_serve(CLI::App& troupe, reader again);
command add_run_batch(CLI::App& troupe);
command add_replay(CLI::App& troupe);
command add_score(CLI::App& troupe);
command add_tokenize(CLI::App& troupe);
command add_detect(CLI::App& troupe);
command add_quantize(CLI::App& troupe);
command add_imatrix(CLI::App& troupe);
command add_steer(CLI::App& troupe);
command add_models(CLI::App& troupe);
command add_pull(CLI::App& troupe);
command add_guide_check(CLI::App& guide);
command add_guide_bench(CLI::App& guide);
command add_bench_model(CLI::App& bench);
command add_bench_machine(CLI::App& bench);
command add_bench_perplexity(CLI::App& bench);

} // namespace troupe::cli
