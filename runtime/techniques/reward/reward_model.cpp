#include "runtime/techniques/reward/reward_model.hpp"

#include "runtime/chat/chat_template.hpp"
#include "runtime/chat/whole_prompt.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/import/ranker_config.hpp"
#include "runtime/model/pooled_head.hpp"
#include "runtime/support/json/json.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

namespace {

constexpr int judged_at_once = 8;

/// The messages with the answer in its place.
jinja::value conversation_of(const judged_prompt& prompt, const std::string& answer) {
  const auto document = json::document::parse(prompt.messages, "messages", errc::internal);
  const auto messages = jinja::from_json(document.root());
  auto items = messages.seq().items;
  jinja::dict last;
  if (prompt.continues_last && !items.empty()) {
    const auto& begun = items.back().map();
    for (const auto& [key, value] : begun.entries())
      last.set(key.str(), value);
    const auto* text = begun.find("content");
    last.set("content", (text && text->is_string() ? text->str() : std::string()) + answer);
    items.pop_back();
  } else {
    last.set("role", "assistant");
    last.set("content", answer);
  }
  items.emplace_back(std::move(last));
  return jinja::value::list(std::move(items));
}

} // namespace

engine_options reward_options(const engine_options& options) {
  engine_options own;
  own.model = text_of(options.techniques, reward_flag);
  own.compute = options.compute;
  if (own.compute.weights == "mapped")
    own.compute.weights = "auto"; // that was meant for the large one
  own.compute.attention_threshold = 0;
  own.compute.sparsity = "0"; // it values answers as well as it can
  own.compute.tensor_parallel = 1;
  own.open_gpu = options.open_gpu;
  own.max_context = options.max_context;
  own.max_sequences = judged_at_once;
  own.cached_sequences = 1;
  own.max_queue = std::max(options.max_queue, options.max_sequences * options.replicas);
  own.request_timeout = options.request_timeout;
  return own;
}

void require_judge(const model_info& judge) {
  const auto refuse = [&](const std::string& why) {
    throw failure(errc::unsupported, "the reward model " + judge.id + " cannot judge answers: " + why, reward_flag);
  };
  if (!judge.tokenizer)
    refuse("it has no tokenizer");
  if (!judge.ranker || judge.ranked_pair)
    refuse("it is no model for classification (its `architectures` do not end in ForSequenceClassification)");
  if (const auto labels = judge.ranker->outputs(); labels != 1)
    refuse("it has scores for " + std::to_string(labels) + " labels, and a value is one");
}

void require_judge(const loaded_model& judge) {
  require_judge(judge.info);
  if (!judge.capabilities.hidden_states)
    throw failure(errc::unsupported,
                  "the reward model " + judge.info.id + " must run on the CPU (--device cpu): " + judge.info.device +
                    " does not give the states that it judges by",
                  reward_flag);
}

std::vector<token_id> judged_ids(const model_info& judge, const judged_prompt& prompt, const std::string& answer) {
  const bool rendered = judge.chat && !prompt.messages.empty();
  std::vector<token_id> ids;
  try {
    if (rendered) {
      const auto& tokens = *judge.tokenizer;
      const auto render = [&](const jinja::value& messages) {
        return judge.chat->render({.messages = messages, .add_generation_prompt = false});
      };
      const auto all = render_whole(conversation_of(prompt, answer), render,
                                    plain_marks([&](std::string_view text) { return tokens.specials_in(text); }));
      ids = tokens.encode_around(all.text, false, all.plain_at);
    } else {
      ids = judge.tokenizer->encode(prompt.text + answer, true);
    }
  } catch (const jinja::fault& f) {
    throw failure(errc::bad_request, "the conversation cannot be given to the reward model: " + std::string(f.what()),
                  "search");
  } catch (const failure& f) {
    throw failure(f.what_failed().code, "the reward model " + judge.id + ": " + f.what_failed().message, "search");
  }
  if (ids.empty())
    throw failure(errc::bad_request, "the reward model " + judge.id + " has nothing to judge: the text is empty",
                  "search");
  if (ids.size() > static_cast<std::size_t>(judge.max_context))
    throw failure(errc::bad_request,
                  "an answer of `search` has " + std::to_string(ids.size()) +
                    " tokens together with its prompt, as the reward model " + judge.id +
                    " reads it, whose context is " + std::to_string(judge.max_context),
                  "search");
  return ids;
}

double judged_value(const model_info& judge, std::span<const float> pooled) {
  const auto score = static_cast<double>((*judge.ranker)(pooled).front());
  const auto value = judge.ranker->scale() == score_scale::sigmoid ? score : 1 / (1 + std::exp(-score));
  if (!std::isfinite(value))
    throw failure(errc::internal, "the reward model " + judge.id + " gave a score that is not a number", "search");
  return value;
}

} // namespace troupe
