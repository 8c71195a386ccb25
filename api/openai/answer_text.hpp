// The text of one answer, taken apart for APIs that tell content, reasoning and calls of tools from each other. Used on
// its connection's strand.
#pragma once

#include "api/openai/openai_request.hpp"
#include "runtime/chat/output/output_delta.hpp"

#include <string_view>
#include <utility>

namespace troupe {

class answer_text {
public:
  /// For the answer to the only prompt of `request`.
  explicit answer_text(const generation_request&) {}

  output_deltas feed(std::string_view text) {
    if (text.empty())
      return {};
    return {{output_delta::kind::content, std::string(text), 0, {}}};
  }
  output_deltas finish() { return {}; }
};

} // namespace troupe
