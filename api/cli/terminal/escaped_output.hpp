// Makes everything that stdout and stderr send to a terminal visible text, whoever wrote it: a model, a file's name, a
// server. Pipes and files get every byte as it is.
#pragma once

#include <cstdio>

namespace troupe::cli {

/// Puts visible_text (runtime/support/text/visible_text.hpp) between the program's streams, std::cout and std::cerr
/// included, and those that are terminals. Call once, ahead of all output.
void escape_terminal_output();

/// Stdout and stderr themselves, for what is to control the terminal: the line editor and progress bars.
std::FILE* terminal_output();
std::FILE* terminal_errors();

} // namespace troupe::cli
