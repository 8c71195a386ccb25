#include "api/cli/terminal/chat_turns.hpp"

#include "api/cli/terminal/chat_history.hpp"
#include "runtime/support/error.hpp"

#include <iostream>
#include <vector>

#include <unistd.h>

namespace troupe::cli {

template <class F>
void chat_turns::keep(const F& what) {
  try {
    if (!file_.empty())
      what();
  } catch (const failure& e) {
    std::cerr << "troupe: the history is not kept: " << e.what() << std::endl;
    file_.clear();
  }
}

chat_turns::chat_turns(console& terminal, bool keep_history)
  : terminal_(terminal), typed_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
  if (!typed_)
    return;
  std::vector<std::string> earlier;
  if (keep_history)
    file_ = chat_history_file();
  keep([&] { earlier = read_chat_history(file_); });
  editor_.emplace(terminal, earlier);
}

console::input chat_turns::next(std::string& turn) {
  terminal_.catch_interrupts();
  if (!editor_)
    return terminal_.read_line(turn);
  const auto input = editor_->read(turn);
  if (input == console::input::line && turn.find_first_not_of(" \t\n") != turn.npos)
    keep([&] { add_to_chat_history(file_, turn); });
  return input;
}

} // namespace troupe::cli
