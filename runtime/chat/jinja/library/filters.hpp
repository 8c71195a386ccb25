// The filter table comes in two parts: text and single values in filters.cpp, sequences in sequence_filters.cpp.
#pragma once

#include "runtime/chat/jinja/context.hpp"

namespace troupe::jinja {

struct named_filter {
  std::string_view name;
  filter_function call;
};

/// Null if there is none of that name.
filter_function find_sequence_filter(std::string_view name);

} // namespace troupe::jinja
