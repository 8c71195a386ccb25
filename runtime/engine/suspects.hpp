// Finds the request at which a part of the engine fails each time. A request that was in two failures without a new
// token in between is suspected: it is held back and tried, the first one after a start alone. It is the culprit if it
// fails alone and others are known to get on, or alone again and again. Failures here are exceptions: an actor that was
// killed says nothing of its requests. Owned by the engine actor; single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

class suspects {
public:
  using request = std::uint64_t; // a number: newer ones have larger ones

  /// Failures of a request that had nothing beside it, until it is the culprit though nobody else has got on either.
  static constexpr int most_alone = 4;

  // -- what happens ---------------------------------------------------------------------------------------------------

  /// A part has failed with these requests in it. Each comes back, or ends.
  void failed(std::span<const request> in_it);

  /// A request asks to be run again and has got so far (tokens). `ran`: it was computed since it was admitted.
  void back(request which, std::uint64_t tokens, bool ran);

  /// It has ended.
  void gone(request which);

  /// It is tried from now on, and has got so far.
  void begin_trial(request which, std::uint64_t tokens) { trial_ = which, tokens_before_ = tokens; }

  /// It has a token more, or cannot be tried at the moment: then it has none more, and runs all the same.
  void end_trial(request which, std::uint64_t tokens);

  // -- what follows ---------------------------------------------------------------------------------------------------

  /// Whether some have not come back yet, so that nobody is tried.
  bool awaits() const { return !returning_.empty(); }

  std::optional<request> trial() const { return trial_; }

  /// Whether there is anybody to be tried, now or once all have come back.
  bool pending() const { return awaits() || !queue_.empty(); }

  /// It may run in a trial only.
  bool holds(request which) const;

  /// Who is to be tried next; nobody while there is a trial. Of those held the first of `waiting`; if nobody is known
  /// to get on, another of these.
  std::optional<request> next(std::span<const request> waiting) const;

  /// Once: the culprit, if one was found. Everybody else's failures were its doing.
  std::optional<request> take_culprit();

private:
  struct record {
    std::uint64_t tokens = 0; // at its last failure
    int failures = 0;         // since it had fewer tokens
    int alone = 0;            // of these
    bool ran = false;         // before the last
    bool prime = false;       // it was being tried at the last

    bool is_suspected() const { return failures >= 2 || alone > 0; }
  };

  void settle();
  void rebuild_queue();

  std::map<request, record> records_; // of those that were in a failure
  std::map<request, bool> returning_; // whether it was alone
  std::vector<request> queue_;        // held, the next one first
  std::optional<request> trial_, failed_trial_, culprit_;
  std::uint64_t tokens_before_ = 0; // the trial
  bool got_on_ = false;             // somebody has, since the last failure
  bool got_on_before_ = false;      // between that and the one before; or its cause is known
};

} // namespace troupe
