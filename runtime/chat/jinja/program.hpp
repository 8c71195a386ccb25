// A chat template, parsed once and rendered any number of times from any thread. Implements jinja2 3.1 as transformers
// configures it (trim_blocks, lstrip_blocks, loop controls, immutable sandbox), except for features that need several
// templates.
#pragma once

#include "runtime/chat/jinja/value.hpp"

#include <ctime>

namespace troupe::jinja {

class program {
public:
  /// Throws failure (bad_file or unsupported): "template line 3, column 7: what is wrong".
  static program parse(std::string_view source);

  /// `globals` is a dict of the template's variables; `now` replaces the local time in strftime_now. Throws
  /// failure(bad_request) with the argument of raise_exception or "template line 3, column 7: what is wrong", also when
  /// a limit is reached; failure(cancelled) soon after `limits.stop` is requested.
  std::string render(const value& globals, const render_limits& limits = {},
                     std::optional<std::tm> now = std::nullopt) const;

private:
  struct body;
  explicit program(std::shared_ptr<const body> b) : body_(std::move(b)) {}
  std::shared_ptr<const body> body_;
};

} // namespace troupe::jinja
