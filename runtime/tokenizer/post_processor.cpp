#include "runtime/tokenizer/post_processor.hpp"

#include "runtime/tokenizer/models/token_model.hpp"

#include <algorithm>

namespace troupe::tokenization {

namespace {

constexpr std::size_t most_pieces = 32, most_added = 1024;

token_id known_id(const json::reader& f, const std::function<bool(token_id)>& has) {
  const auto id = static_cast<token_id>(f.integer(0, highest_id));
  if (!has(id))
    f.refuse("is " + std::to_string(id) + ", which is not the id of a token");
  return id;
}

} // namespace

void post_processor::check_size(const json::reader& description) const {
  std::size_t added = 0;
  for (const auto& piece : template_)
    added += piece.ids.size();
  if (template_.size() > most_pieces || added > most_added)
    description.refuse("adds " + std::to_string(added) + " tokens in " + std::to_string(template_.size()) +
                         " pieces, at most " + std::to_string(most_added) + " in " + std::to_string(most_pieces) +
                         " are supported",
                       errc::unsupported);
}

std::vector<token_id> post_processor::apply(std::vector<token_id> ids, bool add_special_tokens) const {
  if (!has_template_)
    return ids;
  std::vector<token_id> result;
  for (const auto& piece : template_) {
    if (piece.is_text)
      result.insert(result.end(), ids.begin(), ids.end());
    else if (add_special_tokens)
      result.insert(result.end(), piece.ids.begin(), piece.ids.end());
  }
  return result;
}

void post_processor::add(const json::reader& description, const std::function<bool(token_id)>& has) {
  const auto type = description.at("type").string();
  if (type == "Sequence") {
    for (const auto& step : description.at("processors").items())
      add(step, has);
  } else if (type == "ByteLevel") {
    // Only affects offsets into the text, which are not computed here.
  } else if (type == "TemplateProcessing") {
    add_template(description, has);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    begin_template(description);
    for (const auto* end : {"cls", "sep"}) { // each is ["[CLS]", 101]
      const auto pair = description.at(end).items();
      if (pair.size() != 2)
        description.at(end).refuse("must be a token and its id");
      template_.push_back({false, {known_id(pair[1], has)}});
    }
    template_.insert(template_.begin() + 1, piece{true, {}});
  } else {
    description.refuse(
      "is a post-processor of type `" + std::string(type) +
        "`, which is not supported (TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing and "
        "Sequence are)",
      errc::unsupported);
  }
}

void post_processor::begin_template(const json::reader& description) {
  if (has_template_)
    description.refuse("is a second post-processor that adds tokens, which is not supported", errc::unsupported);
  has_template_ = true;
}

void post_processor::add_template(const json::reader& description, const std::function<bool(token_id)>& has) {
  begin_template(description);
  for (const auto& item : description.at("single").items()) {
    if (const auto sequence = item.child("Sequence")) {
      if (sequence->at("id").string() != "A")
        sequence->at("id").refuse("must be `A`: a single text has no second sequence");
      template_.push_back({true, {}});
    } else {
      const auto name = item.at("SpecialToken").at("id");
      const auto known = description.at("special_tokens").child(name.string());
      if (!known)
        name.refuse("is `" + std::string(name.string()) + "`, which is not among the `special_tokens`");
      piece added{false, {}};
      for (const auto& id : known->at("ids").items())
        added.ids.push_back(known_id(id, has));
      template_.push_back(std::move(added));
    }
    check_size(description);
  }
}

} // namespace troupe::tokenization
