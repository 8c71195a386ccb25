// The `post_processor` of tokenizer.json: adds special tokens around a text. Immutable, shared between threads.
#pragma once

#include "runtime/support/json_reader.hpp"
#include "runtime/support/types.hpp"

#include <functional>
#include <vector>

namespace troupe::tokenization {

class post_processor {
public:
  post_processor() = default; // adds nothing
  /// `has(id)`: whether there is such a token. Throws failure naming the malformed or unsupported part.
  post_processor(const json::reader& description, const std::function<bool(token_id)>& has) { add(description, has); }

  std::vector<token_id> apply(std::vector<token_id> ids, bool add_special_tokens) const;

private:
  void add(const json::reader& description, const std::function<bool(token_id)>& has);
  void add_template(const json::reader& description, const std::function<bool(token_id)>& has);
  void begin_template(const json::reader& description);
  void check_size(const json::reader& description) const;

  struct piece {
    bool is_text;              // the ids of the text, or
    std::vector<token_id> ids; // these
  };
  bool has_template_ = false;
  std::vector<piece> template_;
};

} // namespace troupe::tokenization
