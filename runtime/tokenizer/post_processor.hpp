// The `post_processor` of tokenizer.json: adds special tokens around a text. Immutable, shared between threads.
#pragma once

#include "runtime/support/json/json_reader.hpp"
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

  /// Two texts in one, with all special tokens. `second`: where tokens begin to be of the second text; 0: nowhere.
  std::vector<token_id> apply_pair(const std::vector<token_id>& first, const std::vector<token_id>& second_text,
                                   std::int32_t& second) const;

private:
  struct piece;

  void add(const json::reader& description, const std::function<bool(token_id)>& has);
  void add_template(const json::reader& description, const std::function<bool(token_id)>& has);
  std::vector<piece> read_template(const json::reader& list, const json::reader& description,
                                   const std::function<bool(token_id)>& has, bool pair) const;
  void begin_template(const json::reader& description);
  void check_size(const json::reader& description, const std::vector<piece>& pieces) const;

  struct piece {
    bool is_text;              // the ids of a text, or
    std::vector<token_id> ids; // these
    bool second = false;       // the second text
    std::int32_t type = 0;     // of its tokens
  };
  bool has_template_ = false;
  std::vector<piece> template_;
  std::vector<piece> pair_; // of two texts; empty: one behind the other
};

} // namespace troupe::tokenization
