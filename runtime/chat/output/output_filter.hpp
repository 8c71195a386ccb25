// Ends an answer where a text that its client reads as one would contain a banned one. Sampling keeps banned texts out
// of what a model writes (banned_texts), but clients read texts that are put together from it: the content
// before and behind a call is one text, and the escapes within arguments are undone. Follows the content, the reasoning
// and the arguments of each call, so its decisions do not depend on how texts are cut or when they come. A plain value.
#pragma once

#include "runtime/chat/output/output_delta.hpp"
#include "runtime/support/text/banned_texts.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace troupe {

/// JSON as its readers have it: the escapes of strings undone, byte by byte.
class json_unescaping {
public:
  /// What the byte makes known, until the next call; nothing within an escape.
  std::string_view take(char c);

private:
  std::string_view digit(char c);
  std::string_view give(std::string_view text);
  std::string_view give(char32_t c);

  int digits_ = -1;        // of \u that are there; -1: it is not within one
  bool escaped_ = false;   // behind a backslash
  unsigned value_ = 0;     // of the digits
  char32_t surrogate_ = 0; // the first half of a pair
  char out_[8] = {};       // at most the replacement of a lonely half, and a character
};

class output_filter {
public:
  /// Lets everything pass.
  output_filter() = default;
  /// `json_content`: the content is JSON, as arguments are. `tell` is called where an answer is ended, if given.
  explicit output_filter(std::shared_ptr<const banned_texts> banned, bool json_content = false,
                         std::function<void()> tell = {});

  /// Cuts the deltas ahead of the character that would complete a banned text. From then on everything is cut.
  void apply(output_deltas& deltas);
  /// Whether an answer was ended.
  bool closed() const { return closed_; }

private:
  using state = banned_texts::state;
  struct channel {
    state as_sent = 0, as_read = 0; // of JSON: with its escapes, and without
    json_unescaping json;
  };

  /// False: `c` completes a banned text.
  bool take(channel& at, char c, bool json) const;

  std::shared_ptr<const banned_texts> banned_; // null: nothing is
  std::function<void()> tell_;
  bool json_content_ = false, closed_ = false;
  channel content_, reasoning_, arguments_; // the last of the call that has begun last
};

} // namespace troupe
