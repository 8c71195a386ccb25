#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/answer.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "api/openai/token_logprobs.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/support/text/visible_text.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>

namespace troupe::cli {

namespace {

struct score_options {
  std::string text;
  int top = 0; // alternatives
  bool json = false;
  bool verbose = false;
  bool quiet = false;
  engine_options engine;
};

/// Waits for the log-probabilities of the prompt. Nothing if the user interrupts.
std::optional<std::vector<sampled_token>> score_prompt(const engine& from, console& terminal, generation request) {
  std::vector<sampled_token> result;
  terminal.catch_interrupts();
  const auto submitted = from.submit(std::move(request), [&](event e) { terminal.post(std::move(e)); });
  bool was_interrupted = false;
  for (;;) {
    auto next = terminal.next_event();
    if (!next) {
      was_interrupted = true;
      submitted.cancel();
      terminal.let_interrupts_end_the_program();
    } else if (auto* tokens = std::get_if<token_event>(&*next)) {
      std::ranges::move(tokens->prompt, std::back_inserter(result));
    } else if (std::holds_alternative<done_event>(*next)) {
      return was_interrupted ? std::nullopt : std::optional(std::move(result));
    } else {
      const auto& why = std::get<error>(*next);
      throw failure(why.code, why.message, why.param);
    }
  }
}

std::string shown(float logprob) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.4f", static_cast<double>(logprob));
  return text.data();
}

/// A line for each token: id, text, log-probability, then the alternatives.
void print_lines(const std::vector<sampled_token>& tokens, const tokenizer& words) {
  for (const auto& token : tokens) {
    std::cout << token.id << '\t' << visible_name(words.token_bytes(token.id)) << '\t'
              << (&token == tokens.data() ? "-" : shown(token.logprob));
    for (const auto& other : token.top)
      std::cout << '\t' << visible_name(words.token_bytes(other.id)) << ' ' << shown(other.logprob);
    std::cout << '\n';
  }
}

/// `"id":…,"piece":…,"logprob":…`
std::string json_entry(token_id id, const std::string& logprob, const tokenizer& words) {
  return "\"id\":" + std::to_string(id) + ",\"piece\":" + json_text(to_utf8(words.token_bytes(id))) +
    ",\"logprob\":" + logprob;
}

std::string json_or_null(double value) { return std::isfinite(value) ? json_number(value) : "null"; }

void print_json(const std::vector<sampled_token>& tokens, const tokenizer& words, double sum, double perplexity) {
  std::cout << "{\"tokens\":[";
  for (const auto& token : tokens) {
    const bool first = &token == tokens.data();
    std::cout << (first ? "{" : ",{") << json_entry(token.id, first ? "null" : json_logprob(token.logprob), words)
              << ",\"top\":[";
    for (const auto& other : token.top)
      std::cout << (&other == token.top.data() ? "{" : ",{") << json_entry(other.id, json_logprob(other.logprob), words)
                << '}';
    std::cout << "]}";
  }
  std::cout << "],\"logprob\":" << json_or_null(sum) << ",\"perplexity\":" << json_or_null(perplexity) << "}\n";
}

int score(const score_options& options) {
  console terminal; // outlives the engine, which posts to it
  const auto engine = start_engine(options.engine, options.quiet, options.verbose);
  const auto model = engine.model();
  generation request;
  request.prompt = plain_prompt(*model, options.text == "-" ? read_stdin() : options.text);
  request.sampling.max_tokens = 0;
  request.sampling.prompt_logprobs = options.top;
  const auto tokens = score_prompt(engine, terminal, std::move(request));
  if (!tokens)
    return interrupted;

  double sum = 0;
  for (std::size_t i = 1; i < tokens->size(); ++i)
    sum += static_cast<double>((*tokens)[i].logprob);
  const auto scored = tokens->empty() ? 0 : tokens->size() - 1;
  const auto perplexity = scored ? std::exp(-sum / static_cast<double>(scored)) : std::nan("");
  if (options.json)
    print_json(*tokens, *model->tokenizer, sum, perplexity);
  else
    print_lines(*tokens, *model->tokenizer);
  if (!options.quiet && scored > 0)
    std::cerr << scored << " tokens scored: log-probability " << sum << ", perplexity " << perplexity << std::endl;
  return 0;
}

} // namespace

command add_score(CLI::App& troupe) {
  const auto options = std::make_shared<score_options>();
  auto* app = troupe.add_subcommand("score", "Show how likely a model finds each token of a text");
  app->add_option("TEXT", options->text, "The text, without a chat template; `-` reads stdin")->required();
  add_integer(*app, "--top", options->top, 0, sampling_fields::most_logprobs,
              "Also show this many of the likeliest tokens at each position");
  app->add_flag("--json", options->json, "Print one JSON object rather than lines")->group(output_group);
  add_engine_options(*app, options->engine);
  app->add_flag("--verbose", options->verbose, "Print the stages of loading on stderr")->group(output_group);
  app->add_flag("--quiet", options->quiet, "Show neither the progress of loading nor the sum")->group(output_group);
  add_common_options(*app);
  app->footer("Log-probabilities are natural logarithms; the first token has none. The text must fit into the context; "
              "`troupe bench perplexity` reads longer ones.\n"
              "Examples:\n"
              "  troupe score \"Once upon a time\"\n"
              "  troupe score --top 5 --json - < story.txt");
  return {app, [app, options] {
            if (app->count("--max-sequences") == 0) // more would only make the KV cache larger
              options->engine.max_sequences = 1;
            return score(*options);
          }};
}

} // namespace troupe::cli
