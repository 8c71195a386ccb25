#include "runtime/tokenizer/token_decoder.hpp"

#include "runtime/tokenizer/pre_tokenizer.hpp"
#include "runtime/tokenizer/unicode.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

namespace troupe::tokenization {

namespace {

/// The bytes of a byte-level token. A token with other characters (an added one) is returned unchanged.
std::string byte_level_bytes(std::string_view token) {
  std::string bytes;
  for (std::size_t pos = 0; pos < token.size();) {
    const int byte = byte_of(next_char(token, pos));
    if (byte < 0)
      return std::string(token);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

/// The byte of a token "<0x0A>".
std::optional<char> byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>')
    return std::nullopt;
  unsigned value = 0;
  const auto [end, ec] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (ec != std::errc() || end != token.data() + 5)
    return std::nullopt;
  return static_cast<char>(value);
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view content) {
  std::string out;
  for (std::size_t at; (at = text.find(what)) != std::string_view::npos; text.remove_prefix(at + what.size())) {
    out += text.substr(0, at);
    out += content;
  }
  out += text;
  return out;
}

/// Collects the pieces of a token and processes it as a whole.
class whole_token_step : public decode_step {
public:
  void push(std::string_view text, bool ends_token) final {
    if (held_.empty() && ends_token)
      return token(text);
    held_ += text;
    if (ends_token)
      token(std::exchange(held_, {}));
  }

protected:
  virtual void token(std::string_view text) = 0;

private:
  std::string held_;
};

class output_step : public decode_step {
public:
  explicit output_step(std::string& out) : out_(out) {}
  void push(std::string_view text, bool) override { out_ += text; }
  void finish() override {}

private:
  std::string& out_;
};

class space_between_step : public whole_token_step {
  void token(std::string_view text) override {
    if (std::exchange(started_, true))
      next->push(" ", true);
    next->push(text, true);
  }
  bool started_ = false;
};

/// Joins all tokens into one, which ends with the input.
class fuse_step : public decode_step {
public:
  void push(std::string_view text, bool) override {
    if (!text.empty())
      next->push(text, false);
  }
  void finish() override {
    next->push("", true);
    next->finish();
  }
};

class byte_level_step : public whole_token_step {
public:
  void finish() override {
    std::string rest;
    utf8_.finish(rest);
    next->push(rest, true);
    next->finish();
  }

private:
  void token(std::string_view text) override {
    std::string out;
    utf8_.push(byte_level_bytes(text), out);
    if (!out.empty())
      next->push(out, false);
  }
  lossy_utf8 utf8_;
};

/// A run of byte tokens is text if all of it is UTF-8, otherwise one U+FFFD per byte. It is held until its end or until
/// an invalid byte.
class byte_fallback_step : public whole_token_step {
public:
  void finish() override {
    end_run();
    next->finish();
  }

private:
  void token(std::string_view text) override {
    const auto byte = byte_token(text);
    if (!byte) {
      end_run();
      next->push(text, true);
      return;
    }
    run_ += *byte;
    if (!spoilt_)
      spoilt_ = state_.advance(static_cast<unsigned char>(*byte)) == utf8_state::step::invalid;
    if (spoilt_)
      flush_replacements();
  }

  void end_run() {
    if (!state_.between_characters())
      flush_replacements();
    else if (!run_.empty())
      next->push(run_, true);
    run_.clear();
    state_ = {};
    spoilt_ = false;
  }

  void flush_replacements() {
    for (std::size_t i = 0; i < run_.size(); ++i)
      next->push(replacement_character, true);
    run_.clear();
  }

  std::string run_;
  utf8_state state_;
  bool spoilt_ = false;
};

class replace_regex_step : public whole_token_step {
public:
  replace_regex_step(const pattern& what, const std::string& content) : what_(what), content_(content) {}

private:
  void token(std::string_view text) override { next->push(what_.replace(text, content_, scratch_), true); }
  const pattern& what_;
  const std::string& content_;
  match_scratch scratch_;
};

/// Holds back only a possible beginning of a match.
class replace_literal_step : public decode_step {
public:
  replace_literal_step(std::string_view what, std::string_view content) : what_(what), content_(content) {}

  void push(std::string_view text, bool ends_token) override {
    held_ += text;
    std::string out;
    std::size_t done = 0;
    for (std::size_t at; (at = held_.find(what_, done)) != std::string::npos; done = at + what_.size()) {
      out.append(held_, done, at - done);
      out += content_;
    }
    std::size_t keep = ends_token ? 0 : std::min(what_.size() - 1, held_.size() - done);
    while (keep > 0 && !what_.starts_with(std::string_view(held_).substr(held_.size() - keep)))
      --keep;
    out.append(held_, done, held_.size() - keep - done);
    held_.erase(0, held_.size() - keep);
    if (ends_token || !out.empty())
      next->push(out, ends_token);
  }

private:
  std::string_view what_;
  std::string_view content_;
  std::string held_;
};

/// Drops up to `start` leading and `stop` trailing characters `content` of each token.
class strip_step : public decode_step {
public:
  strip_step(std::string_view content, std::size_t start, std::size_t stop)
    : content_(content), start_(start), stop_(stop), leading_(start) {}

  void push(std::string_view text, bool ends_token) override {
    for (; leading_ > 0 && text.starts_with(content_); --leading_)
      text.remove_prefix(content_.size());
    if (!text.empty())
      leading_ = 0;
    std::size_t trailing = 0;
    std::string_view kept = text;
    for (; trailing < stop_ && kept.ends_with(content_); ++trailing)
      kept.remove_suffix(content_.size());
    // If the piece is all `content`, it joins the characters held back; only the last `stop` of them may be dropped.
    std::string out;
    const std::size_t held = kept.empty() ? std::min(held_, stop_ - trailing) : 0;
    for (std::size_t i = held; i < held_; ++i)
      out += content_;
    out += kept;
    held_ = held + trailing;
    if (ends_token || !out.empty())
      next->push(out, ends_token);
    if (ends_token) {
      held_ = 0;
      leading_ = start_;
    }
  }

private:
  std::string_view content_;
  std::size_t start_, stop_;
  std::size_t leading_;  // still droppable at the start of this token
  std::size_t held_ = 0; // characters `content` held back
};

/// The mark becomes a space, except in the first token, where it is the prefix added by encoding.
class metaspace_step : public decode_step {
public:
  metaspace_step(std::string_view mark, bool has_prefix) : mark_(mark), drops_(has_prefix) {}

  void push(std::string_view text, bool ends_token) override {
    next->push(replace_all(text, mark_, drops_ ? "" : " "), ends_token);
    drops_ = drops_ && !ends_token;
  }

private:
  std::string_view mark_;
  bool drops_;
};

/// Takes back the spaces that BERT's pre-tokenizer makes of English.
std::string tidied(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> rules[] = {
    {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
    {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [what, by] : rules)
    text = replace_all(text, what, by);
  return text;
}

/// Tokens continue the one before if they have the prefix; a space goes before the others.
class wordpiece_step : public whole_token_step {
public:
  wordpiece_step(std::string_view prefix, bool tidies) : prefix_(prefix), tidies_(tidies) {}

private:
  void token(std::string_view text) override {
    std::string out(text);
    if (!std::exchange(first_, false))
      out = text.starts_with(prefix_) ? out.substr(prefix_.size()) : " " + out;
    next->push(tidies_ ? tidied(std::move(out)) : out, true);
  }
  std::string_view prefix_;
  bool tidies_;
  bool first_ = true;
};

std::string replaced(std::string_view text, const pattern& what, std::string_view content) {
  match_scratch scratch;
  return what.replace(text, content, scratch);
}

} // namespace

token_decoder::token_decoder() {
  steps_.push_back({[] { return std::make_unique<space_between_step>(); }, {}});
}

std::unique_ptr<decode_stream> token_decoder::stream() const {
  std::unique_ptr<decode_stream> result(new decode_stream);
  for (const auto& step : steps_)
    result->steps_.push_back(step.make());
  result->steps_.push_back(std::make_unique<output_step>(result->text_));
  for (std::size_t i = 0; i + 1 < result->steps_.size(); ++i)
    result->steps_[i]->next = result->steps_[i + 1].get();
  result->first_ = result->steps_.front().get();
  return result;
}

std::string token_decoder::bytes(std::string_view token) const {
  std::string result(token);
  for (const auto& step : steps_)
    if (step.bytes)
      result = step.bytes(result);
  return result;
}

void token_decoder::add(const json::reader& description) {
  if (steps_.size() >= most_steps_of_a_tokenizer)
    description.refuse("is one step more than the " + std::to_string(most_steps_of_a_tokenizer) + " that are supported",
                       errc::unsupported);
  const auto type = description.at("type").string();
  if (type == "Sequence") {
    for (const auto& step : description.at("decoders").items())
      add(step);
  } else if (type == "ByteLevel") {
    steps_.push_back({[] { return std::make_unique<byte_level_step>(); }, byte_level_bytes});
    most_growth_ *= 3; // a byte that is not UTF-8
  } else if (type == "ByteFallback") {
    steps_.push_back({[] { return std::make_unique<byte_fallback_step>(); },
                      [](std::string_view token) {
                        const auto byte = byte_token(token);
                        return byte ? std::string(1, *byte) : std::string(token);
                      }});
  } else if (type == "Fuse") {
    steps_.push_back({[] { return std::make_unique<fuse_step>(); }, {}});
  } else if (type == "Strip") {
    std::string content;
    content += description.at("content").character();
    const auto start = description.at("start").integer(0, 1 << 20), stop = description.at("stop").integer(0, 1 << 20);
    steps_.push_back({[=] { return std::make_unique<strip_step>(content, start, stop); }, {}});
  } else if (type == "Replace") {
    const auto what = pattern::parse(description.at("pattern"));
    const std::string content(description.at("content").string());
    // A regular expression may match before each byte and at the end.
    const double grown = what.literal().empty()
      ? 2.0 * static_cast<double>(content.size()) + 1
      : static_cast<double>(content.size()) / static_cast<double>(what.literal().size());
    most_growth_ *= std::max(1.0, grown);
    steps_.push_back({[=]() -> std::unique_ptr<decode_step> {
                        if (what.literal().empty())
                          return std::make_unique<replace_regex_step>(what, content);
                        return std::make_unique<replace_literal_step>(what.literal(), content);
                      },
                      [=](std::string_view token) { return replaced(token, what, content); }});
  } else if (type == "Metaspace") {
    std::string mark;
    mark += description.at("replacement").character();
    const auto scheme = description.child("prepend_scheme");
    const bool has_prefix = scheme ? scheme->string() != "never" : description.boolean("add_prefix_space", true);
    steps_.push_back({[=] { return std::make_unique<metaspace_step>(mark, has_prefix); },
                      [=](std::string_view token) { return replace_all(token, mark, " "); }});
  } else if (type == "WordPiece") {
    const std::string prefix(description.at("prefix").string());
    const bool tidies = description.boolean("cleanup", true);
    most_growth_ = 2 * most_growth_ + 1; // a space, and " do not" to " don't"
    steps_.push_back({[=] { return std::make_unique<wordpiece_step>(prefix, tidies); },
                      [=](std::string_view token) {
                        return token.starts_with(prefix) ? std::string(token.substr(prefix.size()))
                                                         : " " + std::string(token);
                      }});
  } else {
    description.refuse("is a decoder of type `" + std::string(type) +
                         "`, which is not supported (ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, "
                         "WordPiece and Sequence are)",
                       errc::unsupported);
  }
}

} // namespace troupe::tokenization
