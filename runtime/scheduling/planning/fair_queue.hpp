// Who waits for a slot, and in which order they are served: by priority, then the client that holds the fewest slots,
// then the one whose last turn is longest ago; of one client, by preference, then first come, first served.
// Single-threaded.
#pragma once

#include "runtime/scheduling/step.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace troupe {

/// Names are those of the sequences or queues from which it was made, and live as long as these.
using slots_by_client = std::map<std::string_view, std::int32_t>;

/// In so many parts at most a step is divided for the sake of clients that only decode in it: where they are many, a
/// prompt beside them would else be computed in too small pieces.
constexpr std::int32_t most_parts = 4;

class fair_queue {
public:
  struct place {
    int priority = 0;
    std::uint64_t arrival = 0;
    sequence_id id;
    int preference = 0;
    auto key() const { return std::tuple(-priority, -preference, arrival, id); }
    bool operator<(const place& other) const { return key() < other.key(); }
  };

  void add(const std::string& client, const place& at);
  void remove(const std::string& client, const place& at);
  /// One of the client's has got what it waited for: others come first now, if they hold as much.
  void served(const std::string& client);

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  std::size_t size_of(const std::string& client) const;
  const std::map<std::string, std::set<place>>& by_client() const { return waiting_; }

  /// Goes through those who wait in their order. The queue must not change meanwhile.
  class turns {
  public:
    turns(const fair_queue& queue, const slots_by_client& held);
    /// Nothing at the end.
    std::optional<sequence_id> next();
    /// The last one gets so many slots, which counts for its client's others.
    void take(std::int32_t slots);
    /// That the last one's client has, with those that it got here.
    std::int32_t held() const { return last_->held; }
    /// The last one's client gets nothing more.
    void pass() { last_->next = last_->end; }

  private:
    struct client {
      std::set<place>::const_iterator next, end;
      std::int32_t held = 0;
      std::uint64_t last_turn = 0;
      auto rank() const { return std::tuple(-next->priority, held, last_turn, next->arrival, next->id); }
    };
    std::vector<client> clients_;
    client* last_ = nullptr;
  };

  /// The client of whom one waiting request may be given up for one of `newcomer`, when no more may wait: the one who
  /// has most, if that is more than the newcomer would have.
  std::optional<std::string> largest_beside(const std::string& newcomer) const;

private:
  std::uint64_t last_turn_of(const std::string& client) const;

  std::map<std::string, std::set<place>> waiting_;
  std::size_t size_ = 0;
  std::map<std::string, std::uint64_t> last_turns_; // of clients that need not wait now, too
  std::uint64_t turn_ = 0;
};

/// Divides the rows that prompts get in a step among clients: equally, and what one does not want the others get. Those
/// without prompts, whose tokens take as long as the step, count as well, and what is theirs makes the step shorter. Names of
/// clients must outlive it.
class row_shares {
public:
  void want(std::string_view client, std::int32_t rows) { wanted_[client] += rows; }
  /// The client has got rows of this step before, when others were asked for. They count beside those that decode.
  void had(std::string_view client, std::int32_t rows) { had_[client] += rows; }
  /// A share is `least` rows at least, for in many small pieces nobody's prompt would end. Where that is too much for
  /// all, those come first whose turn is longest ago. `turns`: of clients that had to wait so, by their last turn.
  /// `beside`: clients that want no rows and decode in the step.
  void divide(std::int32_t rows, std::int32_t least, std::map<std::string, std::uint64_t, std::less<>>& turns,
              std::int32_t beside = 0);
  bool wants(std::string_view client) const { return wanted_.contains(client); }
  /// How many rows the client may still have.
  std::int32_t left(std::string_view client) const;
  void take(std::string_view client, std::int32_t rows) { taken_[client] += rows; }

private:
  void divide_in_turns(std::int32_t rows, std::int32_t least, std::map<std::string, std::uint64_t, std::less<>>& turns);

  std::map<std::string_view, std::int32_t> wanted_, had_, taken_;
  std::map<std::string_view, std::int32_t> most_of_; // of some clients
  std::optional<std::int32_t> most_;                 // of each other one; nothing: no limit
};

} // namespace troupe
