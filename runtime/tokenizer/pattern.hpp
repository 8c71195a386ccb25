// A pattern of a normalizer, pre-tokenizer or decoder: a literal string, or a regular expression in Oniguruma's syntax
// (as `tokenizers` uses it) that PCRE2 executes. Immutable, shared between threads; every call has its own
// `match_scratch`.
#pragma once

#include "runtime/support/json/json_reader.hpp"
#include "runtime/tokenizer/growth.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tokenization {

/// A part of a text: a match or the gap between two.
struct span {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool match = false;
};

/// Working memory of one tokenizer call. Match data is allocated on first use, because many tokenizers need no regex.
class match_scratch {
public:
  match_scratch();
  ~match_scratch();
  match_scratch(const match_scratch&) = delete;
  match_scratch& operator=(const match_scratch&) = delete;

  struct state;
  state& get();

  std::vector<span> spans; // reused by callers
  growth_budget growth;

private:
  std::unique_ptr<state> state_;
};

class pattern {
public:
  /// From `{"String": text}` or `{"Regex": text}`. Throws failure naming the field and the fault of the expression.
  static pattern parse(const json::reader& where);
  /// `expression` is in Oniguruma's syntax; errors name `where`.
  static pattern regex(std::string_view expression, const json::reader& where);

  /// Splits `text` (UTF-8) into matches and gaps; empty matches are parts as well. Throws failure(bad_request) if the
  /// expression exceeds its limit of steps or memory.
  void cut(std::string_view text, match_scratch& scratch, std::vector<span>& parts) const;
  /// `text` with every match replaced by `content`.
  std::string replace(std::string_view text, std::string_view content, match_scratch& scratch) const;

  /// The text of a literal pattern, empty for a regular expression.
  const std::string& literal() const { return literal_; }

private:
  std::string literal_;
  std::shared_ptr<const void> code_; // pcre2_code, compiled to machine code if PCRE2 has a JIT
};

/// Translates an Oniguruma expression (Ruby syntax, UTF-8) for PCRE2 (UTF, UCP, MULTILINE). Throws
/// std::invalid_argument with the reason if it has no equivalent.
std::string to_pcre2(std::string_view expression);

} // namespace troupe::tokenization
