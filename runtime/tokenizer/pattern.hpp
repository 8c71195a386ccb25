// What a normalizer, pre-tokenizer or decoder looks for in a text: a literal string, or a regular expression written
// for Oniguruma (as `tokenizers` uses it) and run by PCRE2. A pattern is immutable and shared between threads; what a
// match writes to is a `match_scratch`, one per call.
#pragma once

#include "runtime/support/json_reader.hpp"
#include "runtime/tokenizer/growth.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tokenization {

/// A part of a text: a match, or what lies between two.
struct span {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool match = false;
};

/// What one call of a tokenizer works with. The memory that matching writes to is made on first use, because many
/// tokenizers need no regex.
class match_scratch {
public:
  match_scratch();
  ~match_scratch();
  match_scratch(const match_scratch&) = delete;
  match_scratch& operator=(const match_scratch&) = delete;

  struct state;
  state& get();

  std::vector<span> spans; // reused by callers from text to text
  growth_budget growth;

private:
  std::unique_ptr<state> state_;
};

class pattern {
public:
  /// From `{"String": text}` or `{"Regex": text}`. Throws failure naming the field and what is wrong with the
  /// expression.
  static pattern parse(const json::reader& where);
  /// `expression` in Oniguruma's syntax; `where` is named by errors.
  static pattern regex(std::string_view expression, const json::reader& where);

  /// Cuts `text` (UTF-8) into matches and the gaps between them; empty matches are parts as well. Throws
  /// failure(bad_request) where the expression needs more steps or memory for this text than it may have.
  void cut(std::string_view text, match_scratch& scratch, std::vector<span>& parts) const;
  /// Every match replaced by `content`.
  std::string replace(std::string_view text, std::string_view content, match_scratch& scratch) const;

  /// The text of a literal pattern, empty for a regular expression.
  const std::string& literal() const { return literal_; }

private:
  std::string literal_;
  std::shared_ptr<const void> code_; // pcre2_code, compiled for the machine where PCRE2 can
};

/// An Oniguruma expression (Ruby syntax, UTF-8) in PCRE2's (UTF, UCP, MULTILINE): classes that the two define
/// differently are spelled out, and what cannot be expressed is refused. Throws std::invalid_argument with the reason.
std::string to_pcre2(std::string_view expression);

} // namespace troupe::tokenization
