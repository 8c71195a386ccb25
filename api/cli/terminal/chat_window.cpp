#include "api/cli/terminal/chat_window.hpp"

#include <algorithm>

namespace troupe::cli {

std::size_t turns_to_leave_out(std::size_t earlier, int context, int answer,
                               const std::function<std::size_t(std::size_t)>& tokens_without) {
  const auto room = static_cast<std::size_t>(context - std::min(answer, context / 4));
  if (earlier == 0 || tokens_without(0) <= room)
    return 0;
  std::size_t low = 1, high = earlier; // the answer is in [low, high]
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    if (tokens_without(middle) <= room - room / 4)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

} // namespace troupe::cli
