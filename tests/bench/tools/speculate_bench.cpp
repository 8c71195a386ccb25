#include "api/cli/commands/median.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "runtime/sampling/philox.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/techniques/speculation/speculation_names.hpp"
#include "runtime/techniques/speculation/technique.hpp"
#include "tests/bench/tools/oracle_drafter.hpp"
#include "tests/bench/tools/oracle_guesses.hpp"
#include "tests/bench/tools/tools.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <iostream>
#include <map>
#include <mutex>

namespace troupe::cli {

namespace {

using clock = std::chrono::steady_clock;
using ids = std::vector<token_id>;

constexpr int most_tokens = 1 << 20;

struct speculate_bench_options {
  engine_options engine;
  std::vector<std::string> sources{"0.9", "0.8", "0.5", "0"};
  std::vector<std::string> prompts; // texts; else random ids
  std::string batches = "1";
  int prompt = 32, generate = 128, repeat = 3;
  float temperature = 0;
  bool lines = false, json = false;
};

/// A source of guesses by its name on the command line.
struct source {
  std::string name;
  std::optional<double> acceptance; // of an oracle
  bool drawn = false;               // an oracle's, in the place of what the draft model computes
  bool predicted = false;           // the recorded answer as the request's prediction
  speculation kind = speculation::automatic;
};

source source_of(const std::string& name) {
  source s{name, {}, name.starts_with("draft:"), name == "prediction", speculation::automatic};
  if (s.predicted) {
    s.kind = speculation::ngram;
  } else if (const auto kind = speculation_of(name); kind && *kind != speculation::off) {
    s.kind = *kind;
  } else {
    const auto number = s.drawn ? name.substr(name.find(':') + 1) : name;
    std::size_t used = 0;
    double p = -1;
    try {
      p = std::stod(number, &used);
    } catch (const std::logic_error&) {
      used = 0;
    }
    if (number.empty() || used != number.size() || !(p >= 0 && p <= 1))
      throw usage_failure(
        "--source must be a probability from 0 to 1, draft: and such a probability, prediction, auto, "
        "draft, mtp, ngram, lookahead or jacobi, not `" +
        name + "`");
    s.acceptance = p;
    if (s.drawn)
      s.kind = speculation::draft;
  }
  return s;
}

/// What the oracle proposes to which prompt. The engine's threads ask, the bench tells.
class oracle {
public:
  void record(const ids& prompt, ids continuation) {
    const std::lock_guard lock(mutex_);
    continuations_[prompt] = std::make_shared<const ids>(std::move(continuation));
  }
  std::shared_ptr<const ids> recorded(const ids& prompt) {
    const std::lock_guard lock(mutex_);
    return continuations_.at(prompt);
  }
  /// No acceptance: the oracle keeps out of it. `drawn`: it speaks for the draft model.
  void set(std::optional<double> acceptance, bool drawn, std::uint64_t salt, int vocab) {
    const std::lock_guard lock(mutex_);
    acceptance_ = acceptance;
    drawn_ = drawn;
    salt_ = salt;
    vocab_ = vocab;
  }
  std::unique_ptr<drafter> make(sequence_id id, std::span<const token_id> prompt) {
    auto line = find(id, prompt, false);
    return line ? std::make_unique<oracle_drafter>(*std::move(line), prompt.size()) : nullptr;
  }
  std::optional<oracle_line> find(sequence_id id, std::span<const token_id> prompt, bool drawn) {
    const std::lock_guard lock(mutex_);
    const auto found = continuations_.find(ids(prompt.begin(), prompt.end()));
    if (!acceptance_ || drawn_ != drawn || found == continuations_.end())
      return std::nullopt;
    return oracle_line{found->second, *acceptance_, salt_ * 1000 + id.request, vocab_};
  }

private:
  std::mutex mutex_;
  std::map<ids, std::shared_ptr<const ids>> continuations_;
  std::optional<double> acceptance_;
  bool drawn_ = false;
  std::uint64_t salt_ = 0;
  int vocab_ = 1;
};

/// The answers to a batch of requests, and how fast they came.
struct batch_result {
  std::vector<ids> tokens;
  double rate = 0;       // tokens per second while all sequences decode: until the first of them ends
  double whole_rate = 0; // until the last ends, so with steps of ever fewer sequences
  std::uint64_t accepted = 0, rejected = 0;
};

batch_result run_batch(const engine& on, const std::vector<generation>& requests) {
  struct state {
    std::mutex mutex;
    std::vector<ids> tokens;
    std::size_t begun = 0, ended = 0, counted = 0, counted_together = 0;
    clock::time_point start, first_end, end;
    std::optional<error> failed;
    batch_result result;
    std::promise<void> done;
  };
  const auto all = std::make_shared<state>();
  all->tokens.resize(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i)
    on.submit(requests[i], [all, i, count = requests.size()](event e) {
      const auto now = clock::now();
      const std::lock_guard lock(all->mutex);
      auto& own = all->tokens[i];
      if (const auto* t = std::get_if<token_event>(&e)) {
        if (own.empty() && !t->token_ids.empty() && ++all->begun == count)
          all->start = now;
        else if (all->begun == count)
          all->counted += t->token_ids.size();
        own.insert(own.end(), t->token_ids.begin(), t->token_ids.end());
        if (all->ended == 0) {
          all->first_end = now;
          all->counted_together = all->counted;
        }
        return;
      }
      if (const auto* why = std::get_if<error>(&e))
        all->failed = *why;
      if (const auto* done = std::get_if<done_event>(&e)) {
        all->result.accepted += done->accepted_guesses;
        all->result.rejected += done->rejected_guesses;
      }
      all->end = now;
      if (++all->ended == count)
        all->done.set_value();
    });
  all->done.get_future().wait();
  const std::lock_guard lock(all->mutex);
  if (all->failed)
    throw failure(all->failed->code, all->failed->message, all->failed->param);
  auto result = std::move(all->result);
  result.tokens = std::move(all->tokens);
  const auto rate = [&](std::size_t tokens, clock::time_point end) {
    const auto seconds = std::chrono::duration<double>(end - all->start).count();
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  result.whole_rate = rate(all->counted, all->end);
  // With short answers and many guesses, one may have ended before the last has begun.
  result.rate = all->counted_together > 0 ? rate(all->counted_together, all->first_end) : result.whole_rate;
  return result;
}

struct measurement {
  double with = 0, without = 0; // tokens per second, medians
  double ratio = 0;             // the median of the ratios of pairs
  double whole_ratio = 0;       // the same to the end of the last sequence
  std::uint64_t accepted = 0, rejected = 0;
  std::uint64_t runs = 0, ahead = 0; // of guesses; those that were made while the step before was computed
};

class speculate_bench {
public:
  explicit speculate_bench(const speculate_bench_options& options)
    : options_(options), engine_(start_engine(options.engine, false, true, with_oracle())) {}

  const model_info& model() const { return *engine_.model(); }

  /// Runs a batch with and without guesses in turn. Throws failure(internal) if their tokens differ.
  measurement measure(const source& from, int batch) {
    auto requests = requests_for(batch);
    for (auto& r : requests)
      r.sampling.techniques.set(speculated_by(speculation::off));
    const auto reference = run_batch(engine_, requests); // also warms up
    for (std::size_t i = 0; i < requests.size(); ++i)
      oracle_->record(requests[i].prompt, reference.tokens[i]);
    measurement m;
    const auto before = engine_.stats().total.scheduler;
    std::vector<double> with, without, ratios, whole_ratios;
    for (int round = 0; round < options_.repeat; ++round) {
      for (auto& r : requests) {
        r.sampling.techniques.set(speculated_by(speculation::off));
        r.prediction.clear();
      }
      const auto plain = run_batch(engine_, requests);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        requests[i].sampling.techniques = technique_uses(speculated_by(from.kind));
        if (from.predicted)
          requests[i].prediction = reference.tokens[i];
      }
      oracle_->set(from.acceptance, from.drawn, static_cast<std::uint64_t>(++rounds_), model().vocab_size);
      const auto guessed = run_batch(engine_, requests);
      oracle_->set({}, false, 0, 1);
      if (plain.tokens != reference.tokens || guessed.tokens != reference.tokens)
        throw failure(errc::internal, "the tokens with and without speculation differ");
      with.push_back(guessed.rate);
      without.push_back(plain.rate);
      ratios.push_back(plain.rate > 0 ? guessed.rate / plain.rate : 0);
      whole_ratios.push_back(plain.whole_rate > 0 ? guessed.whole_rate / plain.whole_rate : 0);
      m.accepted += guessed.accepted;
      m.rejected += guessed.rejected;
    }
    const auto after = engine_.stats().total.scheduler;
    m.runs = after.guess_runs - before.guess_runs;
    m.ahead = after.guess_runs_ahead - before.guess_runs_ahead;
    m.with = median(std::move(with));
    m.without = median(std::move(without));
    m.ratio = median(std::move(ratios));
    m.whole_ratio = median(std::move(whole_ratios));
    return m;
  }

private:
  engine_internals with_oracle() const {
    engine_internals internals;
    internals.techniques.set(
      speculation_technique,
      std::make_shared<const guessing_internals>(guessing_internals{
        [oracle = oracle_](sequence_id id, std::span<const token_id> prompt) { return oracle->make(id, prompt); },
        !options_.lines,
        [oracle = oracle_](std::unique_ptr<guess_model> draft) -> std::unique_ptr<guess_model> {
          return std::make_unique<oracle_guesses>(
            std::move(draft),
            [oracle](sequence_id id, std::span<const token_id> prompt) { return oracle->find(id, prompt, true); });
        }}));
    return internals;
  }

  std::vector<generation> requests_for(int batch) const {
    std::vector<generation> requests(static_cast<std::size_t>(batch));
    for (std::size_t i = 0; i < requests.size(); ++i) {
      auto& r = requests[i];
      if (!options_.prompts.empty()) {
        r.prompt = model().tokenizer->encode(options_.prompts[i % options_.prompts.size()], true);
      } else {
        for (int t = 0; t < options_.prompt; ++t)
          r.prompt.push_back(static_cast<token_id>(random_bits(i, static_cast<std::uint64_t>(t), 0) %
                                                   static_cast<std::uint64_t>(model().vocab_size)));
      }
      r.sampling.temperature = options_.temperature;
      r.sampling.seed = i;
      r.sampling.max_tokens = options_.generate;
      r.sampling.ignore_eos = true;
    }
    return requests;
  }

  const speculate_bench_options& options_;
  std::shared_ptr<oracle> oracle_ = std::make_shared<oracle>();
  engine engine_;
  int rounds_ = 0;
};

void print_json(const speculate_bench& bench, const speculate_bench_options& o, const source& s, int batch,
                const measurement& m) {
  std::cout << "{\"model\":" << json_text(bench.model().id) << ",\"device\":" << json_text(bench.model().device)
            << ",\"weights\":" << json_text(bench.model().weights) << ",\"source\":" << json_text(s.name)
            << ",\"batch\":" << batch << ",\"generate\":" << o.generate << ",\"repeat\":" << o.repeat
            << ",\"with_tps\":" << json_number(m.with) << ",\"without_tps\":" << json_number(m.without)
            << ",\"ratio\":" << json_number(m.ratio) << ",\"whole_ratio\":" << json_number(m.whole_ratio)
            << ",\"lines\":" << (o.lines ? "true" : "false") << ",\"temperature\":" << json_number(o.temperature)
            << ",\"accepted\":" << m.accepted << ",\"rejected\":" << m.rejected << ",\"runs\":" << m.runs
            << ",\"ahead\":" << m.ahead << "}\n";
  flush_output();
}

void print_row(const source& s, int batch, const measurement& m) {
  std::printf("%5d  %10s  %14.1f  %11.1f  %5.2f  %10.2f  %8llu  %8llu\n", batch, s.name.c_str(), m.without, m.with,
              m.ratio, m.whole_ratio, static_cast<unsigned long long>(m.accepted),
              static_cast<unsigned long long>(m.rejected));
  flush_output();
}

int run_speculate_bench(speculate_bench_options options) {
  std::vector<source> sources;
  for (const auto& name : options.sources)
    sources.push_back(source_of(name));
  const auto batches = checked_usage([&] { return parse_integers(options.batches, 1, options.engine.max_sequences); });
  speculate_bench bench(options);
  if (!options.prompts.empty() && !bench.model().tokenizer)
    throw failure(errc::bad_request, "--text needs a model with a tokenizer");
  if (!options.json)
    std::printf("%s, weights %s, on %s\n%d tokens generated per sequence; medians of %d pairs\n\n"
                "batch      source  tokens/s plain  speculating  ratio  to the end  accepted  rejected\n",
                bench.model().id.c_str(), bench.model().weights.c_str(), bench.model().device.c_str(), options.generate,
                options.repeat);
  flush_output();
  for (const auto batch : batches)
    for (const auto& s : sources) {
      const auto m = bench.measure(s, static_cast<int>(batch));
      if (options.json)
        print_json(bench, options, s, static_cast<int>(batch), m);
      else
        print_row(s, static_cast<int>(batch), m);
    }
  return 0;
}

} // namespace

command add_bench_speculate(CLI::App& bench) {
  const auto options = std::make_shared<speculate_bench_options>();
  auto* app = bench.add_subcommand("speculate", "Measure generation with and without speculation, in turn");
  const auto count = [&](const char* flag, int& value, int low, const char* help) {
    app->add_option(flag, value, help)
      ->check(integer_between(low, most_tokens))
      ->type_name("INT")
      ->capture_default_str();
  };
  app
    ->add_option(
      "--source", options->sources,
      "Where guesses come from: a probability (an oracle that is right that often), draft: and a "
      "probability (the draft model computes, and the oracle says what), prediction (the right "
      "answer, given as a request's prediction), auto, draft, mtp, ngram, lookahead or jacobi; several are measured in "
      "turn")
    ->delimiter(',')
    ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
    ->allow_extra_args(false)
    ->type_name("LIST")
    ->default_str("0.9,0.8,0.5,0");
  app->add_option("--text", options->prompts, "A prompt; give the flag several times for a batch [random tokens]")
    ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
    ->allow_extra_args(false)
    ->type_name("TEXT");
  app
    ->add_option("--batch", options->batches,
                 "Sequences at once; several sizes, separated by commas, are measured in turn")
    ->multi_option_policy(CLI::MultiOptionPolicy::Join)
    ->allow_extra_args(false)
    ->type_name("LIST")
    ->capture_default_str();
  count("--prompt", options->prompt, 1, "Tokens of each random prompt");
  count("--generate", options->generate, 2, "Tokens generated per sequence");
  count("--repeat", options->repeat, 1, "Pairs of runs to take medians of");
  app->add_option("--temperature", options->temperature, "0: greedy")
    ->check(number_between(0, 2))
    ->type_name("NUMBER")
    ->capture_default_str();
  app->add_flag("--lines", options->lines, "Guesses of a step are one line, and never branch");
  app->add_flag("--json", options->json, "Print one JSON object per line, not a table")->group(output_group);
  add_engine_options(*app, options->engine);
  add_common_options(*app);
  app->footer(
    "A model with random weights accepts no real guess, so an oracle proposes what the model is known to generate, "
    "each token right with the given probability. The tokens with and without speculation are checked to be the same. "
    "Tokens per second and their ratio cover the time in which all sequences decode; the ratio `to the end` covers all "
    "of it, in which sequences with more right guesses end earlier.\n"
    "Examples:\n"
    "  troupe_bench_tools bench speculate --model synthetic:llama-1b --quantize int8\n"
    "  troupe_bench_tools bench speculate --source draft,ngram,lookahead,auto --text \"Once upon a time\"");
  return {app, [options] { return run_speculate_bench(*options); }};
}

} // namespace troupe::cli
