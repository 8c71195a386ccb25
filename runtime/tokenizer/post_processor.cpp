#include "runtime/tokenizer/post_processor.hpp"

#include "runtime/tokenizer/models/token_model.hpp"

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

void post_processor::check_size(const json::reader& description, const std::vector<piece>& pieces) const {
  std::size_t added = 0;
  for (const auto& piece : pieces)
    added += piece.ids.size();
  if (pieces.size() > most_pieces || added > most_added)
    description.refuse("adds " + std::to_string(added) + " tokens in " + std::to_string(pieces.size()) +
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

std::vector<token_id> post_processor::apply_pair(const std::vector<token_id>& first,
                                                 const std::vector<token_id>& second_text, std::int32_t& second) const {
  std::vector<token_id> result;
  second = 0;
  const auto append = [&](const std::vector<token_id>& ids, std::int32_t type) {
    if (type > 0 && second == 0)
      second = static_cast<std::int32_t>(result.size());
    result.insert(result.end(), ids.begin(), ids.end());
  };
  for (const auto& piece : pair_)
    append(!piece.is_text ? piece.ids : piece.second ? second_text : first, piece.type);
  if (pair_.empty()) {
    append(first, 0);
    append(second_text, 0);
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
    const bool bert = type == "BertProcessing"; // the others have two separators between texts, and no types
    const auto end = template_.back();
    pair_ = template_;
    if (!bert)
      pair_.push_back(end);
    pair_.push_back({true, {}, true, bert ? 1 : 0});
    pair_.push_back({false, end.ids, false, bert ? 1 : 0});
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
  template_ = read_template(description.at("single"), description, has, false);
  if (const auto pair = description.child("pair"))
    pair_ = read_template(*pair, description, has, true);
}

std::vector<post_processor::piece> post_processor::read_template(const json::reader& list,
                                                                 const json::reader& description,
                                                                 const std::function<bool(token_id)>& has,
                                                                 bool pair) const {
  std::vector<piece> result;
  for (const auto& item : list.items()) {
    if (const auto sequence = item.child("Sequence")) {
      const auto id = sequence->at("id").string();
      if (id != "A" && !(pair && id == "B"))
        sequence->at("id").refuse(pair ? "must be `A` or `B`" : "must be `A`: a single text has no second sequence");
      result.push_back({true, {}, id == "B", sequence->integer("type_id", 0, 1, 0)});
    } else {
      const auto token = item.at("SpecialToken");
      const auto name = token.at("id");
      const auto known = description.at("special_tokens").child(name.string());
      if (!known)
        name.refuse("is `" + std::string(name.string()) + "`, which is not among the `special_tokens`");
      piece added{false, {}, false, token.integer("type_id", 0, 1, 0)};
      for (const auto& id : known->at("ids").items())
        added.ids.push_back(known_id(id, has));
      result.push_back(std::move(added));
    }
    check_size(description, result);
  }
  return result;
}

} // namespace troupe::tokenization
