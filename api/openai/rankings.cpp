#include "api/openai/rankings.hpp"

#include "api/http/request_scope.hpp"
#include "api/openai/embeddings.hpp"
#include "api/openai/fields/known_fields.hpp"
#include "api/openai/object_id.hpp"
#include "api/openai/openai_request.hpp"
#include "runtime/engine/checked_generation.hpp"
#include "runtime/import/ranker_config.hpp"
#include "runtime/model/pooled_head.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

namespace troupe {

namespace {

constexpr auto rerank_fields = std::to_array<std::string_view>(
  {"model", "query", "documents", "top_n", "return_documents", "max_tokens_per_doc", "user"});
constexpr auto score_fields = std::to_array<std::string_view>({"model", "text_1", "text_2", "user"});

/// Where the score of a pair comes from: one prompt, or the two whose embeddings are compared.
struct scored_pair {
  std::size_t prompt = 0, other = 0;
};

/// The prompts of a request, and the pairs that they score. Texts that stand in many pairs are embedded once.
class pair_list {
public:
  pair_list(const field_reader& body, std::shared_ptr<const served_model> model, std::size_t most_second)
    : body_(body), model_(std::move(model)), most_second_(most_second) {}

  void add(const char* first_key, std::size_t first, const std::string& query, const char* second_key,
           std::size_t second, const std::string& document) {
    if (model_->ranker)
      return add_pair(second_key, query, document);
    pairs.push_back({embedded(first_key, 2 * first, query), embedded(second_key, 2 * second + 1, document)});
  }

  std::vector<generation> prompts;
  std::vector<scored_pair> pairs;

private:
  void add_pair(const char* key, const std::string& query, const std::string& document) {
    pairs.push_back({prompts.size(), 0});
    token_pair both;
    if (const auto& asked = model_->ranked_pair) {
      auto cut = document;
      if (most_second_ != std::numeric_limits<std::size_t>::max()) {
        auto ids = model_->encode(document, false);
        ids.resize(std::min(ids.size(), most_second_));
        cut = model_->decode(ids, false);
      }
      both.ids = model_->encode(asked->before + query + asked->between + cut + asked->behind, false);
    } else {
      both = model_->encode_pair(query, document, most_second_);
    }
    check_prompt_length(both.ids.size(), model_->max_context, key, false);
    auto& one = prompts.emplace_back();
    one.model = model_->id;
    one.prompt = std::move(both.ids);
    one.second = both.second;
    one.sampling.max_tokens = 1; // valid, though nothing is sampled
    one.embed = model_->ranker->how();
  }

  /// The prompt of a text that is alone in it; `place` is the same for the same text.
  std::size_t embedded(const char* key, std::size_t place, const std::string& text) {
    const auto known = std::ranges::find(places_, place);
    if (known != places_.end())
      return static_cast<std::size_t>(known - places_.begin());
    const auto whole = std::string(prompt_named(model_->embeddings.usual_prompt, *model_)) + text;
    const bool cuts = place % 2 == 1 && most_second_ < static_cast<std::size_t>(model_->max_context);
    auto ids = cuts ? model_->encode_cut(whole, most_second_) : encoded_prompt(body_, key, *model_, whole, true);
    prompts.push_back(embedding_of(std::move(ids), *model_, key));
    places_.push_back(place);
    return places_.size() - 1;
  }

  const field_reader& body_;
  std::shared_ptr<const served_model> model_;
  std::size_t most_second_; // tokens of a document
  std::vector<std::size_t> places_;
};

void require_scores(const served_model& model) {
  if (!model.encode)
    throw failure(errc::unsupported, "this model has no tokenizer, and cannot read texts", "model");
  if (!model.ranker)
    return require_embeddings(model);
  if (model.ranker->outputs() != 1)
    throw failure(errc::unsupported,
                  "this model has scores for " + std::to_string(model.ranker->outputs()) +
                    " labels, and texts are ranked by one",
                  "model");
}

/// What both answers are made of: the scores of pairs, once all prompts are done.
class scored_answer : public answer_writer {
public:
  scored_answer(std::shared_ptr<const served_model> model, std::vector<scored_pair> pairs, std::size_t prompts)
    : model_(std::move(model)), pairs_(std::move(pairs)), results_(prompts) {}

  void withhold(const output_filter&) override {} // it says no text
  std::string take(std::size_t, const token_event&) override { return {}; }
  std::string take(std::size_t prompt, const done_event& e) override {
    results_[prompt] = model_->ranker ? (*model_->ranker)(e.embedding)
                                      : formed(e.embedding, {.normalise = true, .dense = model_->dense});
    tokens_ += e.prompt_tokens;
    return {};
  }
  std::string end() override { return {}; }
  std::string fail(const error&) override { return {}; }

protected:
  float score(std::size_t pair) const {
    const auto [one, other] = pairs_[pair];
    if (model_->ranker)
      return results_[one].front();
    double sum = 0;
    for (std::size_t i = 0; i < results_[one].size(); ++i)
      sum += static_cast<double>(results_[one][i]) * results_[other][i];
    return static_cast<float>(sum);
  }
  std::size_t pairs() const { return pairs_.size(); }
  std::uint64_t tokens() const { return tokens_; }
  const served_model& model() const { return *model_; }

private:
  std::shared_ptr<const served_model> model_;
  std::vector<scored_pair> pairs_;
  std::vector<std::vector<float>> results_; // of prompts
  std::uint64_t tokens_ = 0;
};

std::string json_float(float v) { return shortest_digits(std::isfinite(v) ? v : 0); }

class rerank_answer final : public scored_answer {
public:
  rerank_answer(std::shared_ptr<const served_model> model, pair_list list, std::vector<std::string> documents,
                std::size_t top, bool shown)
    : scored_answer(std::move(model), std::move(list.pairs), list.prompts.size()),
      documents_(std::move(documents)),
      top_(top),
      shown_(shown) {}

  /// Best first; of equal scores the earlier document.
  std::string body() override {
    std::vector<std::pair<float, std::size_t>> order;
    for (std::size_t i = 0; i < pairs(); ++i)
      order.emplace_back(score(i), i);
    std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.first > b.first; });
    order.resize(std::min(order.size(), top_));
    std::vector<std::string> results;
    for (const auto& [value, index] : order) {
      auto one = json_object().number("index", index).raw("relevance_score", json_float(value));
      if (shown_)
        one.raw("document", json_object().text("text", to_utf8(documents_[index])).str());
      results.push_back(one.str());
    }
    return json_object()
      .text("id", object_id("rerank-", 16))
      .text("model", to_utf8(model().id))
      .raw("usage", json_object().number("prompt_tokens", tokens()).number("total_tokens", tokens()).str())
      .raw("results", json_list(results))
      .str();
  }

private:
  std::vector<std::string> documents_;
  std::size_t top_;
  bool shown_;
};

class score_answer final : public scored_answer {
public:
  score_answer(std::shared_ptr<const served_model> model, pair_list list)
    : scored_answer(std::move(model), std::move(list.pairs), list.prompts.size()) {}

  std::string body() override {
    std::vector<std::string> data;
    for (std::size_t i = 0; i < pairs(); ++i)
      data.push_back(json_object().number("index", i).text("object", "score").raw("score", json_float(score(i))).str());
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return json_object()
      .text("id", object_id("score-", 16))
      .text("object", "list")
      .number("created", std::chrono::duration_cast<std::chrono::seconds>(now).count())
      .text("model", to_utf8(model().id))
      .raw("data", json_list(data))
      .raw("usage",
           json_object()
             .number("prompt_tokens", tokens())
             .number("total_tokens", tokens())
             .number("completion_tokens", 0)
             .str())
      .str();
  }
};

/// Texts, or objects with one, as Cohere and Jina take them.
std::vector<std::string> read_documents(const field_reader& body) {
  const auto list = body.list("documents");
  if (!list)
    body.refuse("documents", "is required");
  if (list->size() == 0)
    body.refuse("documents", "must not be empty");
  check_entries(body, "documents", list->size(), most_ranked);
  std::vector<std::string> result;
  for (json::value item : *list) {
    std::string_view text;
    json::value inner;
    if (item.get(text) && (!item.is_object() || item["text"].get(inner) || inner.get(text)))
      body.refuse("documents", "a list of texts, or of objects with a `text`", item);
    result.emplace_back(text);
  }
  return result;
}

std::string required_text(const field_reader& body, const char* key) {
  const auto text = body.string(key);
  if (!text)
    body.refuse(key, "is required");
  return *text;
}

std::vector<std::string> required_texts(const field_reader& body, const char* key) {
  auto texts = body.texts(key, most_ranked);
  if (!texts)
    body.refuse(key, "is required");
  if (texts->empty())
    body.refuse(key, "must not be empty");
  return std::move(*texts);
}

} // namespace

generation_job rerank_job(const field_reader& body, std::shared_ptr<const served_model> model,
                          const std::stop_token& stop) {
  require_model_itself(body, *model, "texts are ranked");
  require_scores(*model);
  const auto query = required_text(body, "query");
  auto documents = read_documents(body);
  const auto all = static_cast<std::int64_t>(documents.size());
  const auto top = body.integer("top_n", 1, std::numeric_limits<std::int32_t>::max()).value_or(all);
  const auto most = body.integer("max_tokens_per_doc", 1, std::numeric_limits<std::int32_t>::max());
  const bool shown = body.boolean("return_documents").value_or(true);
  pair_list list(body, model, most ? static_cast<std::size_t>(*most) : std::numeric_limits<std::size_t>::max());
  for (std::size_t i = 0; i < documents.size(); ++i) {
    check(stop);
    list.add("query", 0, query, "documents", i, documents[i]);
  }
  generation_job job;
  job.notes = notes_on_members(body, model->unknown, rerank_fields);
  job.prompts = list.prompts;
  job.writer = std::make_unique<rerank_answer>(std::move(model), std::move(list), std::move(documents),
                                               static_cast<std::size_t>(top), shown);
  return job;
}

generation_job score_job(const field_reader& body, std::shared_ptr<const served_model> model,
                         const std::stop_token& stop) {
  require_model_itself(body, *model, "texts are ranked");
  require_scores(*model);
  const auto first = required_texts(body, "text_1"), second = required_texts(body, "text_2");
  if (first.size() != second.size() && first.size() != 1)
    body.refuse("text_1", "must be one text, or as many as `text_2` has, " + std::to_string(second.size()));
  pair_list list(body, model, std::numeric_limits<std::size_t>::max());
  for (std::size_t i = 0; i < second.size(); ++i) {
    check(stop);
    const auto one = first.size() == 1 ? 0 : i;
    list.add("text_1", one, first[one], "text_2", i, second[i]);
  }
  generation_job job;
  job.notes = notes_on_members(body, model->unknown, score_fields);
  job.prompts = list.prompts;
  job.writer = std::make_unique<score_answer>(std::move(model), std::move(list));
  return job;
}

} // namespace troupe
