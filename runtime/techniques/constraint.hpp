// The hook by which a technique decides which tokens may follow in an answer, and which must. What a request's use asks
// (technique_use::constraint) is compiled for its model by workers of a replica, then samplers follow it: they make masks
// while forward passes run. All of it is a function of an answer's tokens, so it does not depend on the schedule.
#pragma once

#include "runtime/support/types.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

namespace troupe {

class constraint_source; // technique.hpp
struct sampling_params;  // runtime/sampling/sampling_params.hpp

/// Where one answer stands. Throws failure where it cannot go on.
class constraint_state {
public:
  virtual ~constraint_state() = default;
  /// A fork.
  virtual std::unique_ptr<constraint_state> clone() const = 0;

  /// Words of 64 bits in a mask, which has one bit for each id that a text may have.
  virtual std::size_t words() const = 0;
  /// Takes a token that does not end the answer. False, and nothing changes, if it is forbidden.
  virtual bool advance(token_id token) = 0;
  /// Whether the answer may end here.
  virtual bool can_end() = 0;
  /// The tokens that may follow but do not end the answer. `withheld`, if given, gets those that the server's operator
  /// bans, and could follow otherwise.
  virtual void mask(std::span<std::uint64_t> out, std::vector<token_id>* withheld) = 0;
  /// The token that must follow; nothing where there is a choice.
  virtual std::optional<token_id> forced() = 0;
};

/// What the answers of requests follow. Any thread.
class constraint {
public:
  virtual ~constraint() = default;

  /// The start of an answer. `self`: this one.
  virtual std::unique_ptr<constraint_state> begin(std::shared_ptr<const constraint> self,
                                                  const sampling_params& params) const = 0;
  /// Whether an answer may end, and need not, wherever its model likes.
  virtual bool is_free() const = 0;
  /// Does a part of what masks need, ahead of answers that need them: about so many steps, of which a millisecond has
  /// some hundred thousand. False once nothing is left to do.
  virtual bool prepare(std::uint64_t steps) const = 0;
};

/// Compiles those of a model's requests. Shared by replicas; any thread, which it blocks.
class constraint_compiler {
public:
  virtual ~constraint_compiler() = default;

  /// `stops`: the request has token ids of its own that end an answer. `brief`: null if it takes long. Throws failure,
  /// naming the source's field; cancelled soon after a stop request.
  virtual std::shared_ptr<const constraint> compile(const constraint_source& source, bool stops, bool brief,
                                                    const std::stop_token& stop) = 0;
};

} // namespace troupe
