// The process's environment. For the main thread, before others are started.
#pragma once

#include <cstdlib>
#include <string>

namespace troupe {

/// Its value, or nothing; takes it away, so that programs started from here do not see it.
inline std::string take_variable(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value ? value : "";
  unsetenv(name);
  return text;
}

} // namespace troupe
