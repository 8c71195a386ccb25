// Decides which constraint is compiled next. One thread tries all of them briefly, clients in turn. Those that take longer
// go to patient threads, clients in turn again, and each client has only one of these at a time. So a client with many
// or slow ones delays only his own. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

namespace troupe {

class compile_queue {
public:
  using ticket = std::uint64_t; // of the caller's choice, each once

  struct limits {
    std::size_t jobs = 1024;        // that wait or are being compiled
    std::size_t bytes = 128u << 20; // of their sources
    // A client may have half of either.
  };

  compile_queue() : compile_queue(limits()) {}
  explicit compile_queue(const limits& most) : most_(most) {}

  /// `bytes`: of the source. Throws failure(overloaded).
  void add(ticket t, const std::string& client, std::size_t bytes);

  /// The next to look at briefly, or to compile with patience; it counts as being compiled then.
  std::optional<ticket> next_brief() { return next(brief_, false); }
  std::optional<ticket> next_patient() { return next(patient_, true); }

  /// It takes longer than a brief look.
  void put_back(ticket t);
  /// It has been compiled, or is no longer wanted.
  void remove(ticket t);

  std::size_t size() const { return jobs_.size(); }

private:
  struct job {
    std::string client;
    std::size_t bytes = 0;
    bool has_patience = false; // a patient thread compiles it
  };
  struct share {
    std::size_t jobs = 0, bytes = 0, patient = 0;
  };
  struct lane {
    std::map<std::string, std::deque<ticket>> waiting; // by client; none is empty
    std::deque<std::string> turns;                     // those clients, the next one first
  };

  static void push(lane& in, const std::string& client, ticket t);
  static void erase(lane& in, const std::string& client, ticket t);
  std::optional<ticket> next(lane& from, bool has_patience);

  const limits most_;
  lane brief_, patient_;
  std::map<ticket, job> jobs_;
  std::map<std::string, share> clients_;
  std::size_t bytes_ = 0;
};

} // namespace troupe
