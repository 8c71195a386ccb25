#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/tokenizer/pattern.hpp"

#include "runtime/support/meter.hpp"
#include "runtime/tokenizer/unicode.hpp"

#include <pcre2.h>

#include <stdexcept>

namespace troupe::tokenization {

namespace {

// A megabyte of one run needs a few million steps. Memory is for interpreted matching without JIT.
constexpr std::uint32_t most_steps = 50'000'000;
constexpr std::uint32_t most_heap_kib = 256 * 1024;
constexpr std::size_t first_jit_stack = 32 * 1024;
constexpr std::size_t most_jit_stack = 8 * 1024 * 1024;

std::string error_text(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

} // namespace

struct match_scratch::state {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(first_jit_stack, most_jit_stack, nullptr);

  state() {
    if (!data || !context)
      throw std::bad_alloc();
    pcre2_set_match_limit(context, most_steps);
    pcre2_set_heap_limit(context, most_heap_kib);
    if (stack)
      pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~state() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

match_scratch::match_scratch() = default;
match_scratch::~match_scratch() = default;

match_scratch::state& match_scratch::get() {
  if (!state_)
    state_ = std::make_unique<state>();
  return *state_;
}

pattern pattern::parse(const json::reader& where) {
  const auto literal = where.child("String");
  const auto expression = where.child("Regex");
  if (literal.has_value() == expression.has_value())
    where.refuse("must have either `String` or `Regex`");
  if (expression && expression->string().size() > longest_regex)
    expression->refuse("has " + std::to_string(expression->string().size()) + " bytes, at most " +
                       std::to_string(longest_regex) + " are supported");
  if (expression)
    return regex(expression->string(), *expression);
  if (literal->string().size() > longest_literal)
    literal->refuse("has " + std::to_string(literal->string().size()) + " bytes, at most " +
                    std::to_string(longest_literal) + " are supported");
  if (literal->string().empty()) // matches between characters: left to the regex engine
    return regex("", *literal);
  pattern result;
  result.literal_ = literal->string();
  return result;
}

pattern pattern::regex(std::string_view expression, const json::reader& where) {
  std::string translated;
  try {
    translated = to_pcre2(expression);
  } catch (const std::invalid_argument& e) {
    where.refuse(e.what(), errc::unsupported);
  }
  int code = 0;
  std::size_t offset = 0;
  std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
    pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                       PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                                       &offset, context.get());
  if (!compiled)
    where.refuse("is not a usable regular expression: " + error_text(code));
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); // failure only means slower matching
  pattern result;
  result.code_ = std::shared_ptr<const void>(
    compiled, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); });
  return result;
}

namespace {

void cut_at_literal(std::string_view text, std::string_view literal, std::vector<span>& parts) {
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(literal, done)) != std::string_view::npos; done = at + literal.size()) {
    meter::charge(1);
    if (at > done)
      parts.push_back({done, at, false});
    parts.push_back({at, at + literal.size(), true});
  }
  if (done < text.size())
    parts.push_back({done, text.size(), false});
}

void cut_at_regex(std::string_view text, const pcre2_code* code, match_scratch::state& state,
                  std::vector<span>& parts) {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t done = 0;      // end of the last match
  bool matched_here = false; // that match ended where the next search starts
  for (std::size_t start = 0; start <= text.size();) {
    meter::charge(1);
    int rc = pcre2_match(code, subject, text.size(), start, PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
      rc = pcre2_match(code, subject, text.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data, state.context);
    if (rc == PCRE2_ERROR_NOMATCH)
      break;
    if (rc < 0)
      throw failure(errc::bad_request, "the text cannot be split into words: " + error_text(rc));
    const std::size_t* range = pcre2_get_ovector_pointer(state.data);
    const std::size_t begin = range[0], end = range[1];
    if (begin == end && matched_here && begin == done) { // as Rust's onig: no empty match right after a match
      if (start < text.size())
        next_char(text, start);
      else
        ++start;
      continue;
    }
    if (begin > done)
      parts.push_back({done, begin, false});
    if (end >= begin)
      parts.push_back({begin, end, true});
    start = done = end;
    matched_here = true;
  }
  if (done < text.size())
    parts.push_back({done, text.size(), false});
}

} // namespace

void pattern::cut(std::string_view text, match_scratch& scratch, std::vector<span>& parts) const {
  parts.clear();
  if (text.empty())
    return;
  if (code_)
    cut_at_regex(text, static_cast<const pcre2_code*>(code_.get()), scratch.get(), parts);
  else
    cut_at_literal(text, literal_, parts);
}

std::string pattern::replace(std::string_view text, std::string_view content, match_scratch& scratch) const {
  std::vector<span> parts;
  cut(text, scratch, parts);
  std::string out;
  out.reserve(text.size());
  for (const auto& part : parts)
    out += part.match ? content : text.substr(part.begin, part.end - part.begin);
  return out;
}

} // namespace troupe::tokenization
