#include "api/cli/suggestions.hpp"

#include "runtime/techniques/repertoire.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::cli {

namespace {

using pair = std::pair<std::string_view, std::string_view>;
constexpr auto others = std::to_array<pair>({
  {"c", "max-context"},
  {"t", "threads"},
  {"s", "seed"},
  {"ctx-size", "max-context"},
  {"num-ctx", "max-context"},
  {"context", "max-context"},
  {"context-length", "max-context"},
  {"max-model-len", "max-context"},
  {"tokens", "max-tokens"},
  {"n-predict", "max-tokens"},
  {"num-predict", "max-tokens"},
  {"max-new-tokens", "max-tokens"},
  {"repeat-penalty", "repetition-penalty"},
  {"num-return-sequences", "n"},
  {"system-prompt", "system"},
  {"chat-template-file", "chat-template"},
  {"grammar-file", "grammar"},
  {"json-schema-file", "json-schema"},
  {"cache-type-k", "kv-dtype"},
  {"cache-type-v", "kv-dtype"},
  {"kv-cache-dtype", "kv-dtype"},
  {"kv-cache-memory-bytes", "kv-cache"},
  {"quantization", "quantize"},
  {"num-threads", "threads"},
  {"max-num-seqs", "max-sequences"},
  {"parallel", "max-sequences"},
  {"max-num-batched-tokens", "step-tokens"},
  {"ubatch-size", "step-tokens"},
  {"served-model-name", "model-name"},
  {"alias", "model-name"},
  {"tool-call-parser", "tool-parser"},
  {"file", "PROMPT"},
  {"prompt", "PROMPT"},
  {"p", "PROMPT"},
  {"generate", "run"},
  {"ask", "run"},
  {"prompt", "run"},
  {"download", "pull"},
  {"get", "pull"},
  {"complete", "run"},
  {"server", "serve"},
  {"start", "serve"},
  {"detokenize", "tokenize"},
  {"convert", "quantize"},
  {"perplexity", "bench"},
});

constexpr auto habits = std::to_array<pair>({
  {"list", "`troupe models` lists the models of this machine, Ollama's included"},
  {"ls", "`troupe models` lists the models of this machine, Ollama's included"},
  {"show", "`troupe models --json` tells what is known of each model"},
  {"ps", "there is no daemon: `troupe serve` keeps its model loaded, and GET /v1/models names it"},
  {"stop", "there is no daemon: Ctrl-C ends `troupe serve`, and `run` and `chat` end with their answers"},
  {"rm", "`troupe models --json` tells the path of each model, for `rm`"},
  {"cp", "a model has as many names as one gives it: `--model-name`; `troupe models --json` tells its path, for `cp`"},
  {"create",
   "flags, or a file of them for `--config`, do what a Modelfile does: `--model`, `--system`, "
   "`--chat-template`, `--temperature`; `troupe quantize` writes a GGUF file"},
});

bool is_word_of(std::string_view words, std::string_view one) {
  for (auto rest = words; !rest.empty();) {
    const auto end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == one)
      return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

} // namespace

std::string_view instead_of(std::string_view command) {
  const auto found = std::ranges::find(habits, command, &pair::first);
  return found == habits.end() ? std::string_view() : found->second;
}

std::string_view name_here(std::string_view elsewhere) {
  for (const auto* each : repertoire())
    for (const auto& option : each->options)
      if (is_word_of(option.elsewhere, elsewhere))
        return option.name;
  const auto found = std::ranges::find(others, elsewhere, &pair::first);
  return found == others.end() ? std::string_view() : found->second;
}

} // namespace troupe::cli
