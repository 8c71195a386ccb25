// What simulations have exercised: each message by the state of its receiver, each death by the phases of the requests that it
// met. The universe of messages is read from the interfaces of actors/messages.hpp, so that a new message is missed at once.
#pragma once

#include <caf/fwd.hpp>

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace troupe::simulation {

/// "submit", "request_left": an atom's text, or the type of a message.
std::string message_name(const caf::mailbox_element& what);

class coverage {
public:
  void handled(const std::string& kind, const std::string& message, const std::string& state) {
    ++messages_[{kind, message, state}];
  }
  void died(const std::string& kind, const std::string& phase) { ++deaths_[{kind, phase}]; }

  void add(const coverage& other);

  /// "scheduler <- submit": messages of the interfaces that no actor has handled.
  std::vector<std::string> unhandled() const;

  /// In percent, and what was never reached.
  void report(std::ostream& to) const;

  /// Lines "what kind message state count", to go on with in another run.
  void save(std::ostream& to) const;
  void load(std::istream& from);

private:
  std::map<std::tuple<std::string, std::string, std::string>, std::uint64_t> messages_;
  std::map<std::pair<std::string, std::string>, std::uint64_t> deaths_;
};

} // namespace troupe::simulation
