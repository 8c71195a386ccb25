// Where the turns of a chat come from: a terminal, with a history, or the lines of a pipe. Main thread only.
#pragma once

#include "api/cli/terminal/console.hpp"
#include "api/cli/terminal/line_editor.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace troupe::cli {

class chat_turns {
public:
  chat_turns(console& terminal, bool keep_history);

  bool typed() const { return typed_; }

  console::input next(std::string& turn);

private:
  /// Reports once that the history cannot be kept.
  template <class F>
  void keep(const F& what);

  console& terminal_;
  bool typed_;
  std::filesystem::path file_; // empty: none
  std::optional<line_editor> editor_;
};

} // namespace troupe::cli
