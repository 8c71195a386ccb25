#include "api/catalogue/model_roster.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

using state = model_roster::state;
using kind = model_roster::action::kind;

const model_roster::time start = model_roster::time() + 1h;
const error no_room{errc::out_of_memory, "the weights need 4 GiB, but only 1 GiB of memory are available", {}};

model_roster three(std::optional<model_roster::duration> usually = {}) {
  return model_roster({{"chat", {"gpt-4o"}}, {"embed"}, {"rank"}}, usually);
}

/// Carries out what is to be done, with loads that all fit; returns "load 0, unload 2".
std::string carry_out(model_roster& roster, model_roster::time now = start) {
  std::string done;
  while (const auto next = roster.next(now)) {
    const bool load = next->what == kind::load;
    done += (done.empty() ? "" : ", ") + std::string(load ? "load " : "unload ") + std::to_string(next->model);
    load ? roster.loaded(next->model, now) : roster.unloaded(next->model);
  }
  return done;
}

/// Somebody wants it, and uses it no more.
void load(model_roster& roster, std::size_t model, model_roster::time now = start) {
  const auto wish = roster.want(model);
  carry_out(roster, now);
  REQUIRE(roster.now(model) == state::ready);
  roster.leave(wish);
}

std::string refusal_of(std::vector<model_roster::listed> models) {
  try {
    model_roster(std::move(models), {});
    return "none";
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::bad_request);
    return f.what();
  }
}

} // namespace

TEST_CASE("models are found by name, by alias, and as Ollama's clients call them") {
  const auto roster = three();
  CHECK(roster.find("embed") == 1);
  CHECK(roster.find("gpt-4o") == 0);
  CHECK(roster.find("rank:latest") == 2);
  CHECK(roster.find("gpt-4o:latest") == 0);
  CHECK(roster.find("") == 0);
  CHECK_FALSE(roster.find("another"));
  CHECK_FALSE(roster.find(":latest"));
}

TEST_CASE("no two models have a name in common") {
  CHECK(refusal_of({{"a"}, {"a"}}) ==
        "two models would be called `a`: both; give each a name of its own, as NAME=PATH");
  CHECK(refusal_of({{"a"}, {"b", {"a"}}}).find("called `a`: `a` and `b`") != std::string::npos);
  CHECK(refusal_of({{"a", {"x"}}, {"b", {"x"}}}).find("called `x`: `a` and `b`") != std::string::npos);
  CHECK(refusal_of({{"a", {"x", "x"}}}).find("called `x`: both") != std::string::npos);
  CHECK(refusal_of({{""}, {"b"}}) == "each of several models needs a name");
  CHECK(refusal_of({{""}}) == "none");
}

TEST_CASE("many who want a model at once have it loaded once, and one after another models are loaded") {
  auto roster = three();
  const auto first = roster.want(1), second = roster.want(1), other = roster.want(0);
  REQUIRE(roster.next(start)->model == 1);
  CHECK_FALSE(roster.next(start)); // one at a time
  const auto late = roster.want(1);
  CHECK_FALSE(roster.settled(first));
  roster.loaded(1, start);
  CHECK(roster.settled(first));
  CHECK(roster.settled(second));
  CHECK(roster.settled(late));
  CHECK_FALSE(roster.settled(other));
  CHECK(carry_out(roster) == "load 0");
  CHECK(roster.settled(other));
}

TEST_CASE("who wants a model that is loaded need not wait") {
  auto roster = three();
  load(roster, 0);
  CHECK(roster.settled(roster.want(0)));
  CHECK(carry_out(roster).empty());
}

TEST_CASE("a load that failed is told to all who waited, and tried again for who asks then") {
  auto roster = three();
  const auto first = roster.want(0), second = roster.want(0);
  roster.next(start);
  roster.failed(0, {errc::bad_file, "a file is cut short", {}});
  CHECK(roster.settled(first));
  CHECK(roster.settled(second));
  CHECK(roster.now(0) == state::failed);
  CHECK(roster.why(0)->message == "a file is cut short");
  CHECK_FALSE(roster.next(start)); // not by itself
  roster.leave(first);
  roster.leave(second);
  const auto again = roster.want(0);
  CHECK_FALSE(roster.settled(again));
  CHECK(carry_out(roster) == "load 0");
  CHECK_FALSE(roster.why(0));
}

TEST_CASE("who leaves before a load has begun takes it back, and nobody makes room for it") {
  auto roster = three();
  load(roster, 0);
  const auto running = roster.want(1), waiting = roster.want(2);
  roster.next(start);
  roster.leave(waiting);
  CHECK(roster.now(2) == state::unloaded);
  roster.leave(running); // which is loaded to its end
  roster.loaded(1, start);
  CHECK(roster.now(1) == state::ready);
  CHECK(carry_out(roster).empty());
}

TEST_CASE("an idle model is unloaded when its time is over, which counts from its last use") {
  auto roster = three(60s);
  load(roster, 0);
  CHECK(roster.wake_at() == start + 60s);
  roster.begin_use(0);
  CHECK_FALSE(roster.wake_at());
  CHECK_FALSE(roster.next(start + 10min)); // a long answer is not cut
  roster.end_use(0, start + 10min);
  CHECK(roster.idle_until(0) == start + 11min);
  CHECK_FALSE(roster.next(start + 11min - 1ms));
  CHECK(carry_out(roster, start + 11min) == "unload 0");
}

TEST_CASE("a request that comes while a model is being unloaded waits, and has it loaded again") {
  auto roster = three(60s);
  load(roster, 0);
  const auto unload = roster.next(start + 60s);
  REQUIRE(unload->what == kind::unload);
  const auto wish = roster.want(0);
  CHECK_FALSE(roster.settled(wish));
  CHECK_FALSE(roster.next(start + 60s));
  roster.unloaded(0);
  CHECK(carry_out(roster, start + 61s) == "load 0");
  CHECK(roster.settled(wish));
}

TEST_CASE("a request may say how long the model stays: not at all, for good, or so long") {
  auto roster = three(60s);
  load(roster, 0);
  roster.keep(0, -1ms);
  CHECK_FALSE(roster.wake_at());
  roster.keep(0, 5s);
  CHECK(roster.wake_at() == start + 5s);
  roster.begin_use(0);
  roster.keep(0, 0ms);
  CHECK_FALSE(roster.next(start)); // it is answered first
  roster.end_use(0, start);
  CHECK(carry_out(roster) == "unload 0");
  load(roster, 0);
  CHECK(roster.wake_at() == start + 60s); // as usual
  auto never = three();
  load(never, 0);
  CHECK_FALSE(never.wake_at());
}

TEST_CASE("who lacks memory gets that of the model used longest ago, one after another") {
  auto roster = three();
  load(roster, 0, start);
  load(roster, 1, start + 1s);
  roster.begin_use(0);
  roster.end_use(0, start + 2s);
  const auto wish = roster.want(2);
  auto next = roster.next(start);
  CHECK(next->others_may_leave);
  roster.failed(2, no_room);
  CHECK_FALSE(roster.settled(wish));
  next = roster.next(start);
  REQUIRE(next->what == kind::unload);
  CHECK(next->model == 1);
  CHECK_FALSE(roster.next(start)); // until it has left
  roster.unloaded(1);
  CHECK(roster.next(start)->model == 2);
  roster.failed(2, no_room);
  next = roster.next(start);
  CHECK(next->model == 0);
  roster.unloaded(0);
  next = roster.next(start);
  REQUIRE(next->what == kind::load);
  CHECK_FALSE(next->others_may_leave);
  roster.failed(2, no_room); // and nobody is left
  CHECK(roster.settled(wish));
  CHECK(roster.now(2) == state::failed);
  CHECK(roster.why(2)->message == no_room.message);
}

TEST_CASE("models that stay make no room: the load is refused") {
  model_roster roster({{"chat", {}, true}, {"embed"}}, 1s);
  load(roster, 0);
  CHECK_FALSE(roster.wake_at());
  const auto wish = roster.want(1);
  CHECK_FALSE(roster.next(start)->others_may_leave);
  roster.failed(1, no_room);
  CHECK(roster.settled(wish));
  CHECK(roster.now(0) == state::ready);
  CHECK(roster.now(1) == state::failed);
}

TEST_CASE("a model in use makes room when its last use has ended, and takes no new ones meanwhile") {
  auto roster = three();
  load(roster, 0);
  roster.begin_use(0);
  const auto wish = roster.want(1);
  roster.next(start);
  roster.failed(1, no_room);
  CHECK_FALSE(roster.next(start));
  CHECK(roster.now(0) == state::leaving);
  const auto behind = roster.want(0);
  CHECK_FALSE(roster.settled(behind));
  roster.end_use(0, start);
  CHECK(carry_out(roster) == "unload 0, load 1, load 0");
  CHECK(roster.settled(wish));
  CHECK(roster.settled(behind));
}

TEST_CASE("a busy model stays if the load that it was to leave for is taken back") {
  auto roster = three();
  load(roster, 0);
  roster.begin_use(0);
  const auto wish = roster.want(1);
  roster.next(start);
  roster.failed(1, no_room);
  roster.next(start);
  REQUIRE(roster.now(0) == state::leaving);
  const auto behind = roster.want(0);
  roster.leave(wish);
  CHECK(roster.now(0) == state::ready);
  CHECK(roster.settled(behind));
  roster.end_use(0, start);
  roster.leave(behind);
  CHECK(carry_out(roster).empty());
}

TEST_CASE("a model does not leave before those have used it who waited for it") {
  auto roster = three();
  const auto first = roster.want(0);
  carry_out(roster);
  const auto second = roster.want(1);
  roster.next(start);
  roster.failed(1, no_room);
  CHECK_FALSE(roster.next(start)); // the first has yet to use it
  roster.begin_use(0);
  roster.leave(first);
  CHECK_FALSE(roster.next(start));
  roster.end_use(0, start);
  CHECK(carry_out(roster) == "unload 0, load 1");
  CHECK(roster.settled(second));
}

TEST_CASE("an operator unloads a model: once its uses have ended, its load has, or its load is not begun") {
  auto roster = three();
  load(roster, 0);
  roster.begin_use(0);
  const auto gone = roster.unload(0);
  CHECK_FALSE(roster.next(start));
  CHECK_FALSE(roster.settled(gone));
  roster.end_use(0, start);
  CHECK(carry_out(roster) == "unload 0");
  CHECK(roster.settled(gone));

  const auto loading = roster.want(1), queued = roster.want(2);
  roster.next(start);
  const auto second = roster.unload(1), third = roster.unload(2);
  CHECK(roster.settled(queued));
  CHECK(roster.why(2)->message == "the model `rank` was not loaded, as an operator unloaded it");
  CHECK(roster.settled(third));
  CHECK_FALSE(roster.settled(second));
  roster.loaded(1, start);
  CHECK(roster.settled(loading));
  roster.leave(loading);
  CHECK(carry_out(roster) == "unload 1");
  CHECK(roster.settled(second));
  CHECK(roster.settled(roster.unload(1))); // nothing is to be done
}

TEST_CASE("a model whose engine has ended is unloaded, counts as failed, and may be loaded again") {
  auto roster = three();
  load(roster, 0);
  load(roster, 1);
  roster.begin_use(0);
  roster.died(0, {errc::device, "the device is lost", {}});
  CHECK(roster.now(0) == state::leaving);
  CHECK(carry_out(roster).empty()); // a request has yet to be told
  roster.end_use(0, start);
  CHECK(carry_out(roster) == "unload 0");
  CHECK(roster.now(0) == state::failed);
  CHECK(roster.why(0)->message == "the device is lost");
  CHECK(roster.now(1) == state::ready);
  load(roster, 0);
  CHECK(roster.uses(0) == 0);
}
