#include "tests/simulation/coverage.hpp"

#include "actors/messages.hpp"
#include "actors/messages/admission.hpp"
#include "actors/messages/arrivals.hpp"
#include "actors/messages/constraints.hpp"
#include "actors/messages/disk.hpp"
#include "actors/messages/endings.hpp"
#include "actors/messages/guessing.hpp"
#include "actors/messages/introductions.hpp"
#include "actors/messages/judging.hpp"
#include "actors/messages/loading.hpp"
#include "actors/messages/reminders.hpp"
#include "actors/messages/roles.hpp"
#include "actors/messages/sampling.hpp"

#include <caf/atom.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/message.hpp>
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <istream>
#include <ostream>
#include <set>
#include <typeinfo>
#include <vector>

namespace troupe::simulation {

namespace {

std::string type_name(const std::type_info& type) {
  int status = 0;
  char* readable = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? readable : type.name();
  std::free(readable);
  return name.starts_with("troupe::") ? name.substr(8) : name;
}

template <class First>
struct first_name {
  static std::string get() { return type_name(typeid(First)); }
};
template <caf::atom_value Value>
struct first_name<caf::atom_constant<Value>> {
  static std::string get() { return to_string(Value); }
};

template <class Signature>
struct input_name;
template <class First, class... More, class Out>
struct input_name<caf::typed_mpi<caf::detail::type_list<First, More...>, Out>> {
  static std::string get() { return first_name<First>::get(); }
};

template <class Interface>
struct interface_of;
template <class... Signatures>
struct interface_of<caf::typed_actor<Signatures...>> {
  static std::vector<std::string> messages() { return {input_name<Signatures>::get()...}; }
};

struct known_kind {
  const char* kind;
  std::vector<std::string> messages, states;
};

std::vector<known_kind> universe() {
  const std::vector<std::string> load{"nobody", "one request", "several"};
  std::vector<known_kind> all{
    {"engine", interface_of<engine_actor>::messages(), {"loading", "all run", "some run", "none runs", "stopping"}},
    {"request",
     interface_of<request_actor>::messages(),
     {"new", "known", "compiling", "submitted", "started", "decoding", "paused", "ending"}},
    {"scheduler", interface_of<scheduler_actor>::messages(), {"idle", "waiting", "running", "busy", "paused"}},
    {"kv_block_manager", interface_of<kv_block_manager_actor>::messages(), {"empty", "cached", "in use", "short"}},
    {"executor", interface_of<executor_actor>::messages(), load},
    {"sampler", interface_of<sampler_actor>::messages(), load},
    {"guide_compiler", interface_of<constraint_compiler_actor>::messages(), load},
    {"guide_worker", interface_of<constraint_worker_actor>::messages(), load},
    {"kv_mover", interface_of<kv_mover_actor>::messages(), load},
    {"drafter", interface_of<guess_worker_actor>::messages(), load},
    {"judge", interface_of<judge_actor>::messages(), load},
  };
  return all;
}

const std::vector<std::string> phases{"none",      "new",     "known",    "compiling",
                                      "submitted", "started", "decoding", "paused"};

} // namespace

std::string message_name(const caf::mailbox_element& what) {
  const auto& content = const_cast<caf::mailbox_element&>(what).content();
  if (content.empty())
    return "nothing";
  if (content.match_element<caf::atom_value>(0))
    return to_string(content.get_as<caf::atom_value>(0));
  const auto [number, type] = content.type(0);
  if (type != nullptr)
    return type_name(*type);
  return content.match_element<caf::down_msg>(0) ? "down"
    : content.match_element<caf::exit_msg>(0)    ? "exit"
                                                 : "response";
}

void coverage::add(const coverage& other) {
  for (const auto& [key, count] : other.messages_)
    messages_[key] += count;
  for (const auto& [key, count] : other.deaths_)
    deaths_[key] += count;
}

std::vector<std::string> coverage::unhandled() const {
  std::vector<std::string> all;
  for (const auto& each : universe())
    for (const auto& message : each.messages)
      if (std::ranges::none_of(each.states, [&](const auto& state) {
            return messages_.contains({each.kind, message, state});
          }))
        all.push_back(std::string(each.kind) + " <- " + message);
  return all;
}

void coverage::report(std::ostream& to) const {
  std::size_t all = 0, seen = 0, all_messages = 0, seen_messages = 0;
  std::string never, partly;
  for (const auto& each : universe())
    for (const auto& message : each.messages) {
      std::vector<std::string> missing;
      for (const auto& state : each.states)
        if (!messages_.contains({each.kind, message, state}))
          missing.push_back(state);
      all += each.states.size();
      seen += each.states.size() - missing.size();
      ++all_messages;
      seen_messages += missing.size() < each.states.size();
      if (missing.size() == each.states.size()) {
        never += std::string("  ") + each.kind + " <- " + message + "\n";
      } else if (!missing.empty()) {
        partly += std::string("  ") + each.kind + " <- " + message + ":";
        for (const auto& state : missing)
          partly += " " + state + (&state == &missing.back() ? "" : ",");
        partly += "\n";
      }
    }
  std::size_t all_deaths = 0, seen_deaths = 0;
  std::string undied;
  for (const auto& each : universe())
    for (const auto& phase : phases) {
      ++all_deaths;
      if (deaths_.contains({each.kind, phase}))
        ++seen_deaths;
      else
        undied += std::string("  ") + each.kind + " while " + phase + "\n";
    }
  const auto percent = [](std::size_t part, std::size_t whole) {
    return std::to_string(part) + " of " + std::to_string(whole) + " (" + std::to_string(100 * part / whole) + " %)";
  };
  to << "messages handled:                  " << percent(seen_messages, all_messages) << '\n'
     << "messages x states of the receiver: " << percent(seen, all) << '\n'
     << "deaths x phases of a request:      " << percent(seen_deaths, all_deaths) << '\n'
     << "never handled:\n"
     << never << "never in these states:\n"
     << partly << "never died:\n"
     << undied;
}

void coverage::save(std::ostream& to) const {
  for (const auto& [key, count] : messages_)
    to << "message\t" << std::get<0>(key) << '\t' << std::get<1>(key) << '\t' << std::get<2>(key) << '\t' << count
       << '\n';
  for (const auto& [key, count] : deaths_)
    to << "death\t" << key.first << '\t' << key.second << "\t-\t" << count << '\n';
}

void coverage::load(std::istream& from) {
  std::string what, kind, second, third, count;
  while (std::getline(from, what, '\t') && std::getline(from, kind, '\t') && std::getline(from, second, '\t') &&
         std::getline(from, third, '\t') && std::getline(from, count)) {
    if (what == "message")
      messages_[{kind, second, third}] += std::stoull(count);
    else
      deaths_[{kind, second}] += std::stoull(count);
  }
}

} // namespace troupe::simulation
