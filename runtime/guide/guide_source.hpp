// What a guide is compiled from: a plain value that requests carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::guides {

/// How a model's reasoning is marked in an answer, where it is bounded (sampling_params::thinking_budget).
struct thinking_marks {
  std::string begin = {}; // behind white space, at the answer's beginning
  std::string end = {};   // empty: reasoning is not bounded
  std::string close = {}; // what ends it where the budget does; begins with `end`
  bool is_open = false;   // the answer begins within it

  bool operator==(const thinking_marks&) const = default;
};

struct guide_source {
  enum class kind : std::uint8_t {
    json_object,    // any JSON object; `text` is unused
    json_schema,    // `text`: a JSON Schema, draft 7 or 2020-12
    regex,          // `text`: a regular expression that the whole answer matches
    choice,         // `choices`: one of them
    grammar,        // `text`: GBNF, or Lark
    structural_tag, // `text`: JSON, as vLLM and XGrammar have it
    anything,       // nothing is asked of the answer but what `thinking` and `banned` say
  };
  kind what = kind::json_object;
  std::string text = {};
  std::vector<std::string> choices = {};

  // JSON only:
  bool any_order = false; // properties in any order, rather than the schema's
  bool compact = false;   // without white space, rather than with a little (a space, or a new line and up to 24)

  // The guide begins behind the first occurrence of this text in the answer (the end of a model's reasoning); until
  // then anything is allowed, an end where the guide allows an empty text. Empty: it begins at once.
  std::string after = {};

  // The answer may begin, behind white space, with a part from the one text to the first occurrence of the other (a
  // model's reasoning that it may leave out), which is free. A little white space may follow. Both empty: it does not.
  std::string preface_begin = {}, preface_end = {};

  // JSON only: objects that name members (`properties`) have no others, unless their schema speaks of others.
  bool closed = false;

  thinking_marks thinking = {};

  // Texts that the answer never contains, however they are cut into tokens.
  std::vector<std::string> banned = {};

  // What the request calls it, for errors; empty: "guide".
  std::string field = {};
  // What the request calls the parts of a structural tag that are `enforced`, by their number.
  std::vector<std::string> parts = {};
};

inline bool is_json(const guide_source& s) {
  return s.what == guide_source::kind::json_object || s.what == guide_source::kind::json_schema;
}

inline std::string field_of(const guide_source& s) { return s.field.empty() ? "guide" : s.field; }

/// Bytes of its texts.
inline std::size_t size_of(const guide_source& s) {
  auto size = s.text.size();
  for (const auto& c : s.choices)
    size += c.size();
  return size;
}

} // namespace troupe::guides
