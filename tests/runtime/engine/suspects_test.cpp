#include "runtime/engine/suspects.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

using namespace troupe;

namespace {

using ids = std::vector<suspects::request>;

/// An engine with one replica in which requests get a token in each step, or the step fails.
struct rehearsal {
  suspects of;
  std::map<suspects::request, std::uint64_t> tokens; // of those that are left
  std::set<suspects::request> running = {}, tried_alone = {};
  ids refused = {};
  int failures = 0;

  explicit rehearsal(const ids& all) {
    for (const auto each : all)
      tokens.emplace(each, 0);
  }

  /// Whoever may run does; who is to be tried comes alone if nobody runs yet.
  void admit() {
    if (!of.trial()) {
      ids waiting;
      for (const auto& [each, _] : tokens)
        if (!running.contains(each))
          waiting.push_back(each);
      if (const auto next = of.next(waiting)) {
        of.begin_trial(*next, tokens.at(*next));
        const bool alone = running.empty();
        running.insert(*next);
        if (alone) {
          tried_alone.insert(*next);
          return;
        }
      }
    }
    if (!of.trial() || running.size() > 1)
      for (const auto& [each, _] : tokens)
        if (!of.holds(each))
          running.insert(each);
  }

  void step(const std::function<bool(const std::set<suspects::request>&)>& fails) {
    admit();
    const auto in_it = running;
    if (!fails(in_it)) {
      for (const auto each : in_it) {
        ++tokens.at(each);
        of.end_trial(each, tokens.at(each));
      }
      return;
    }
    ++failures;
    running.clear();
    of.failed(ids(in_it.begin(), in_it.end()));
    for (const auto each : in_it)
      of.back(each, tokens.at(each), true);
    CHECK_FALSE(of.awaits());
    if (const auto culprit = of.take_culprit()) {
      refused.push_back(*culprit);
      tokens.erase(*culprit);
      of.gone(*culprit);
    }
  }
};

std::function<bool(const std::set<suspects::request>&)> at(const ids& poison) {
  return [poison](const auto& in_it) {
    return std::ranges::any_of(poison, [&](auto each) { return in_it.contains(each); });
  };
}

} // namespace

TEST_CASE("the request at which every step fails is found, whichever it is, and the others get on") {
  for (suspects::request poison = 1; poison <= 5; ++poison) {
    CAPTURE(poison);
    rehearsal r({1, 2, 3, 4, 5});
    for (int i = 0; i < 30; ++i)
      r.step(at({poison}));
    CHECK(r.refused == ids{poison});
    CHECK(r.failures <= 5);
    for (const auto& [each, tokens] : r.tokens) {
      CAPTURE(each);
      CHECK(tokens > 15);
    }
    CHECK_FALSE(r.of.pending());
  }
}

TEST_CASE("several such requests are found, one after another") {
  rehearsal r({1, 2, 3, 4, 5, 6});
  for (int i = 0; i < 60; ++i)
    r.step(at({2, 5}));
  std::ranges::sort(r.refused);
  CHECK(r.refused == ids{2, 5});
  for (const auto& [_, tokens] : r.tokens)
    CHECK(tokens > 20);
}

TEST_CASE("a newcomer at which those that got on fail is found in three failures") {
  rehearsal r({1, 2, 3});
  for (int i = 0; i < 5; ++i)
    r.step(at({}));
  r.tokens.emplace(9, 0);
  r.step(at({9}));
  CHECK(r.failures == 1);
  CHECK_FALSE(r.of.pending()); // the first time, everybody may have been the cause, or nobody
  for (int i = 0; i < 20; ++i)
    r.step(at({9}));
  CHECK(r.refused == ids{9});
  CHECK(r.failures <= 4);
}

TEST_CASE("the newest is tried first, as others got on before it came") {
  rehearsal r({1, 2, 3, 4});
  for (int i = 0; i < 3; ++i)
    r.step(at({4}));
  CHECK(r.tried_alone == std::set<suspects::request>{4});
}

TEST_CASE("failures at which requests have a new token in between make nobody suspect") {
  rehearsal r({1, 2, 3});
  for (int i = 0; i < 50; ++i) {
    r.step(at({}));
    r.step([](const auto&) { return true; });
    CHECK_FALSE(r.of.pending());
  }
  CHECK(r.refused.empty());
}

TEST_CASE("while every step fails nobody is the culprit for long, and all get on when the fault goes away") {
  rehearsal r({1, 2, 3});
  for (int i = 0; i < 8; ++i)
    r.step([](const auto&) { return true; });
  CHECK(r.tried_alone == std::set<suspects::request>{1, 2, 3});
  CHECK(r.refused.empty());
  for (int i = 0; i < 10; ++i)
    r.step(at({}));
  for (const auto& [_, tokens] : r.tokens)
    CHECK(tokens >= 7);
  CHECK_FALSE(r.of.pending());
}

TEST_CASE("of others that wait one is tried as a witness, before a request is the culprit for failing alone") {
  rehearsal r({1});
  r.step(at({1}));
  r.step(at({1}));
  r.step(at({1}));
  CHECK(r.refused.empty()); // alone three times, but the whole engine may be at fault
  r.tokens.emplace(2, 0);
  r.step(at({1}));
  CHECK(r.tokens.at(2) == 1);
  r.step(at({1}));
  CHECK(r.refused == ids{1});
}

TEST_CASE("a request that has nothing beside it is the culprit after failing alone some times") {
  rehearsal r({7});
  for (int i = 0; i < 10; ++i)
    r.step(at({7}));
  CHECK(r.refused == ids{7});
  CHECK(r.failures == suspects::most_alone);
}

TEST_CASE("requests that only waited are suspected only if none that was computed is") {
  suspects s;
  for (int i = 0; i < 2; ++i) {
    s.failed(ids{1, 2, 3});
    s.back(1, 0, false);
    s.back(2, 0, true);
    CHECK(s.awaits());
    s.back(3, static_cast<std::uint64_t>(i), true);
  }
  CHECK(s.holds(2));
  CHECK_FALSE(s.holds(1));
  CHECK_FALSE(s.holds(3)); // it had a new token
  suspects t;
  for (int i = 0; i < 2; ++i) {
    t.failed(ids{1, 2});
    t.back(1, 0, false);
    t.back(2, static_cast<std::uint64_t>(i), true);
  }
  CHECK(t.holds(1));
}

TEST_CASE("a request that ends is waited for and tried no longer") {
  suspects s;
  s.failed(ids{1, 2});
  s.back(1, 0, true);
  s.back(2, 0, true);
  s.failed(ids{1, 2});
  s.back(1, 0, true);
  CHECK_FALSE(s.next({})); // before all have come back
  s.gone(2);
  CHECK_FALSE(s.awaits());
  REQUIRE(s.next({}) == suspects::request(1));
  s.begin_trial(1, 0);
  CHECK_FALSE(s.next({}));
  s.gone(1);
  CHECK_FALSE(s.trial());
  CHECK_FALSE(s.pending());
}

TEST_CASE("a trial that gives no token proves nothing, and one that is killed is had again") {
  suspects s;
  for (int i = 0; i < 2; ++i) {
    s.failed(ids{1, 2});
    s.back(1, 5, true);
    s.back(2, 5, true);
  }
  REQUIRE(s.next({}) == suspects::request(2));
  s.begin_trial(2, 5);
  s.back(2, 5, true); // by no failure of which `failed` tells
  REQUIRE(s.next({}) == suspects::request(2));
  s.begin_trial(2, 5);
  s.end_trial(2, 5); // it is paused
  CHECK_FALSE(s.holds(2));
  REQUIRE(s.next({}) == suspects::request(1));
  s.begin_trial(1, 5);
  s.failed(ids{1});
  s.back(1, 5, true);
  CHECK_FALSE(s.take_culprit()); // nobody is known to get on
  CHECK(s.holds(2));
}

TEST_CASE("who comes back from a second failure is held at once, not only when all others have come back, too") {
  suspects s;
  s.failed(ids{1, 2, 3});
  s.back(3, 0, true);
  CHECK_FALSE(s.holds(3)); // one failure says nothing
  s.back(2, 0, true);
  s.back(1, 0, false);
  s.failed(ids{1, 2, 3});
  s.back(3, 0, true);
  s.back(1, 0, false);
  CHECK(s.holds(3)); // else another replica ran it by the time that it is the first in the queue
  CHECK(s.holds(1));
  s.back(2, 0, true);
  CHECK(s.holds(3));
  CHECK(s.holds(2));
  CHECK_FALSE(s.holds(1)); // it only waited
  CHECK(s.next({}) == suspects::request(3));
}

TEST_CASE("one that is held is not kept waiting by another that runs since its trial was paused") {
  suspects s;
  for (int i = 0; i < 2; ++i) {
    s.failed(ids{1, 2});
    s.back(1, 5, true);
    s.back(2, 5, true);
  }
  s.begin_trial(2, 5);
  s.end_trial(2, 5); // it is paused, and runs in one replica
  s.begin_trial(1, 5);
  s.failed(ids{1}); // in the other one
  s.back(1, 5, true);
  REQUIRE(s.holds(1));
  CHECK(s.next(ids{1}) == suspects::request(1));
}
