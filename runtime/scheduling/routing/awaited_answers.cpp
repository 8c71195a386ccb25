#include "runtime/scheduling/routing/awaited_answers.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

// Before any has ended: as long as it may become.
weighed_query awaited_answers::weighed(const route_query& what) const {
  const double most = what.most_answer;
  if (lengths_.scores().answers == 0 || what.most_answer <= 0)
    return {what, most, most};
  const auto length = lengths_.predict(what.signs);
  return {what, std::min(most, length.mean_left(what.answered)),
          std::min(most, length.quantile_left(0.8, what.answered))};
}

void awaited_answers::await(std::uint64_t request, const route_query& what) {
  awaited_.insert_or_assign(request, expected_answer{what.signs, lengths_.predict(what.signs)});
}

void awaited_answers::learn(const ended_answer& ended) {
  const auto found = awaited_.find(ended.request);
  if (found == awaited_.end())
    return;
  lengths_.learn(found->second.signs, ended.tokens, ended.cut, found->second.length);
  awaited_.erase(found);
}

// Of those that died, or whose replica did, no end is reported.
void awaited_answers::end(std::uint64_t request) {
  constexpr std::size_t most = 256; // end between two reports, for all that is worth learning
  if (!awaited_.contains(request))
    return;
  ended_.push_back(request);
  if (ended_.size() > most) {
    awaited_.erase(ended_.front());
    ended_.pop_front();
  }
}

void awaited_answers::rename(std::uint64_t was, std::uint64_t request) {
  if (auto awaited = awaited_.extract(was)) {
    awaited.key() = request;
    awaited_.insert(std::move(awaited));
  }
}

} // namespace troupe
