// How a model marks reasoning and calls in its answers. Plain data.
#pragma once

#include <string>

namespace troupe {

class call_format;
class reasoning_format;

/// How a model writes what is not content. Found from its chat template (find_chat_format); null: it does not.
struct chat_format {
  const reasoning_format* reasoning = nullptr;
  const call_format* calls = nullptr;
};

/// Which formats to take: "auto" (the template's), "none", or a name.
struct format_names {
  std::string calls = "auto", reasoning = "auto";
};

} // namespace troupe
