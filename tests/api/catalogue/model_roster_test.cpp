#include "api/catalogue/model_roster.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

using state = model_roster::state;
using kind = model_roster::action::kind;

const model_roster::time start = model_roster::time() + 1h;
const error no_room{errc::out_of_memory, "the weights need 4 GiB, but only 1 GiB of memory are available", {}};

const error device_lost{errc::device, "the device is lost", {}};

model_roster three(std::optional<model_roster::duration> usually = {}) {
  return model_roster({{"chat", {"gpt-4o"}}, {"embed"}, {"rank"}}, usually);
}

/// Carries out what is to be done, with loads that all fit; returns "load 0, unload 2".
std::string carry_out(model_roster& roster, model_roster::time now = start) {
  std::string done;
  while (const auto next = roster.next(now)) {
    const bool load = next->what == kind::load;
    done += (done.empty() ? "" : ", ") + std::string(load ? "load " : "unload ") + std::to_string(next->model);
    load ? roster.loaded(next->model, now) : roster.unloaded(next->model, now);
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
  roster.failed(0, {errc::bad_file, "a file is cut short", {}}, start);
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
  roster.unloaded(0, start);
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
  auto next = roster.next(start + 3s);
  CHECK(next->others_may_leave);
  roster.failed(2, no_room, start + 3s);
  CHECK_FALSE(roster.settled(wish));
  next = roster.next(start + 3s);
  REQUIRE(next->what == kind::unload);
  CHECK(next->model == 1);
  CHECK_FALSE(roster.next(start + 3s)); // until it has left
  roster.unloaded(1, start + 3s);
  CHECK(roster.next(start + 3s)->model == 2);
  roster.failed(2, no_room, start + 3s);
  next = roster.next(start + 3s);
  CHECK(next->model == 0);
  roster.unloaded(0, start + 3s);
  next = roster.next(start + 3s);
  REQUIRE(next->what == kind::load);
  CHECK_FALSE(next->others_may_leave);
  roster.failed(2, no_room, start + 3s); // and nobody is left
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
  roster.failed(1, no_room, start);
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
  roster.failed(1, no_room, start);
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
  roster.failed(1, no_room, start);
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
  roster.failed(1, no_room, start);
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

TEST_CASE("a model whose engine has ended is unloaded, counts as failed, and is loaded again by itself") {
  auto roster = three();
  load(roster, 0);
  load(roster, 1);
  roster.begin_use(0);
  roster.died(0, device_lost, start);
  CHECK(roster.now(0) == state::leaving);
  CHECK(carry_out(roster).empty()); // a request has yet to be told
  roster.end_use(0, start);
  CHECK(carry_out(roster) == "unload 0");
  CHECK(roster.now(0) == state::failed);
  CHECK(roster.why(0)->message == device_lost.message);
  CHECK(roster.now(1) == state::ready);
  REQUIRE(roster.wake_at());
  CHECK(carry_out(roster, *roster.wake_at() - 1ms).empty());
  CHECK(carry_out(roster, *roster.wake_at()) == "load 0");
  CHECK(roster.now(0) == state::ready);
  CHECK_FALSE(roster.comes_back(0));
  CHECK_FALSE(roster.wake_at());
  CHECK(roster.uses(0) == 0);
}

TEST_CASE("the pauses before an engine is started again double up to half a minute, and never end") {
  auto roster = three();
  auto now = start;
  load(roster, 0, now);
  roster.died(0, device_lost, now);
  CHECK(carry_out(roster, now) == "unload 0");
  std::vector<std::int64_t> pauses;
  for (int i = 0; i < 100; ++i) {
    pauses.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(*roster.wake_at() - now).count());
    now = *roster.wake_at();
    REQUIRE(roster.next(now)->what == kind::load);
    if (i % 2)
      roster.failed(0, {errc::bad_file, "a file is missing", {}}, now);
    else { // it ends as soon as it is there
      roster.loaded(0, now);
      roster.died(0, device_lost, now);
      CHECK(carry_out(roster, now) == "unload 0");
    }
  }
  CHECK(std::vector(pauses.begin(), pauses.begin() + 9) ==
        std::vector<std::int64_t>{250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000});
  CHECK(pauses.back() == 30000);
  now = *roster.wake_at();
  CHECK(carry_out(roster, now) == "load 0");
  roster.died(0, device_lost, now + 1min); // it was well for a while
  CHECK(carry_out(roster, now + 1min) == "unload 0");
  CHECK(roster.wake_at() == now + 1min + 250ms);
}

TEST_CASE(
  "a request need not wait for the pause before an engine is started again, and who leaves does not prolong it") {
  auto roster = three();
  load(roster, 0);
  roster.died(0, device_lost, start);
  CHECK(carry_out(roster) == "unload 0");
  const auto wish = roster.want(0);
  roster.leave(wish);
  CHECK(carry_out(roster) == "load 0");
}

TEST_CASE("an engine that is started again by itself has nobody leave for it") {
  auto roster = three();
  load(roster, 0);
  load(roster, 1);
  roster.died(0, device_lost, start);
  CHECK(carry_out(roster) == "unload 0");
  const auto again = *roster.wake_at();
  CHECK(roster.next(again)->others_may_leave); // so that what does not fit is told
  roster.failed(0, no_room, again);
  CHECK(carry_out(roster, again).empty());
  CHECK(roster.now(1) == state::ready);
  CHECK(roster.wake_at() == again + 500ms);
}

TEST_CASE("an operator's word ends the attempts to start an engine again") {
  auto roster = three();
  load(roster, 0);
  roster.died(0, device_lost, start);
  CHECK(carry_out(roster) == "unload 0");
  roster.unload(0);
  CHECK_FALSE(roster.wake_at());
  CHECK(carry_out(roster, start + 1h).empty());
  load(roster, 1);
  roster.begin_use(1);
  roster.unload(1);
  roster.died(1, device_lost, start); // it was to go in any case
  roster.end_use(1, start);
  CHECK(carry_out(roster) == "unload 1");
  CHECK_FALSE(roster.wake_at());
}

namespace {

/// Model 0 is there, its load having taken 10 s, and 1 lacks the memory for its own.
struct short_of_memory {
  explicit short_of_memory(std::vector<model_roster::listed> models = {{"chat"}, {"embed"}, {"rank"}})
    : roster(std::move(models), {}) {
    const auto first = roster.want(0);
    roster.next(start - 10s);
    roster.loaded(0, start);
    roster.leave(first);
  }
  model_roster::wish lack(std::size_t model, model_roster::time now) {
    const auto wish = roster.want(model);
    REQUIRE(roster.next(now)->model == model);
    roster.failed(model, no_room, now);
    return wish;
  }
  void use(std::size_t model, model_roster::time from, model_roster::time to) {
    const auto wish = roster.want(model);
    carry_out(roster, from);
    roster.begin_use(model);
    roster.leave(wish);
    roster.end_use(model, to);
  }

  model_roster roster;
};

} // namespace

TEST_CASE("an idle model gives way once it has been idle for as long as its load took") {
  short_of_memory it;
  it.use(0, start + 1s, start + 3s);
  const auto wish = it.lack(1, start + 3s);
  CHECK_FALSE(it.roster.next(start + 3s));
  CHECK(it.roster.waits_for(1)->by == 0);
  CHECK(it.roster.waits_for(1)->at == start + 13s);
  CHECK(it.roster.wake_at() == start + 13s);
  CHECK_FALSE(it.roster.next(start + 13s - 1ms));
  CHECK(carry_out(it.roster, start + 13s) == "unload 0, load 1");
  CHECK(it.roster.settled(wish));
}

TEST_CASE("models that are named in turn spend at most a fifth of the time on loads") {
  short_of_memory it;
  auto now = start;
  model_roster::duration loads{};
  for (int i = 0; i < 20; ++i) { // each is always wanted, and only one fits
    const std::size_t there = i % 2, other = 1 - there;
    it.roster.begin_use(there);
    const auto wish = it.lack(other, now);
    while (!it.roster.next(now)) {
      if (it.roster.now(there) == state::leaving) {
        it.roster.end_use(there, now);
        continue;
      }
      now = *it.roster.wake_at();
    }
    it.roster.unloaded(there, now);
    REQUIRE(it.roster.next(now)->model == other);
    now += 10s;
    loads += 10s;
    it.roster.loaded(other, now);
    CHECK(it.roster.settled(wish));
    it.roster.leave(wish);
  }
  CHECK((now - start) / loads == 5);
}

TEST_CASE("a load waits for no longer than a minute for a model that was slow to load, and is idle or in use") {
  model_roster roster({{"chat"}, {"embed"}}, {});
  const auto first = roster.want(0);
  roster.next(start - 1h);
  roster.loaded(0, start);
  const auto wish = roster.want(1);
  roster.next(start);
  roster.failed(1, no_room, start);
  CHECK_FALSE(roster.next(start));
  CHECK(roster.wake_at() == start + 1min);
  CHECK_FALSE(roster.next(start + 1min));
  CHECK(roster.now(0) == state::leaving);
  CHECK(roster.waits_for(1)->by == 0);
  CHECK_FALSE(roster.waits_for(1)->at);
  roster.leave(first);
  CHECK(carry_out(roster, start + 61s) == "unload 0, load 1");
  CHECK(roster.settled(wish));
}

TEST_CASE("who would wait longer than a request may is refused at once, with the numbers") {
  short_of_memory it({{"chat"}, {"embed", {}, false, 2s}, {"rank"}});
  it.roster.begin_use(0);
  const auto wish = it.lack(1, start);
  CHECK(it.roster.refuse_late(start));
  CHECK(it.roster.settled(wish));
  CHECK(it.roster.now(1) == state::failed);
  const auto& why = *it.roster.why(1);
  CHECK(why.code == errc::overloaded);
  CHECK(why.message ==
        no_room.message +
          "; the model `chat` makes room for it in 40 s, and the server lets none wait for more than 2 s (--max-wait)");
  CHECK(why.wait_ms == 40000);
  CHECK(why.retry_ms == 38000);
  CHECK(it.roster.now(0) == state::ready);
  CHECK_FALSE(it.roster.next(start));
  CHECK_FALSE(it.roster.wake_at());
}

TEST_CASE("who waits for a model whose answers do not end is refused after ten minutes, and that model goes on") {
  short_of_memory it;
  it.roster.begin_use(0);
  const auto wish = it.lack(1, start + 40s);
  CHECK_FALSE(it.roster.refuse_late(start + 40s));
  CHECK_FALSE(it.roster.next(start + 40s));
  REQUIRE(it.roster.now(0) == state::leaving);
  const auto end = *it.roster.wake_at();
  CHECK(end == start + 40s + 10min + 1ms);
  CHECK_FALSE(it.roster.refuse_late(end - 1ms));
  CHECK(it.roster.refuse_late(end));
  CHECK(it.roster.settled(wish));
  CHECK(it.roster.why(1)->message ==
        no_room.message + "; the model `chat` is to make room for it, but its answers did not end in 601 s");
  CHECK(it.roster.now(0) == state::ready);
}

namespace {

/// Model 0, `chat`, has one use and is listed no more; another `chat`, model 1, is wanted.
struct replaced {
  explicit replaced(model_roster::duration longest_wait = {}, bool is_due = true) : roster({{"chat"}}, {}) {
    load(roster, 0);
    roster.begin_use(0);
    roster.list({{std::nullopt, {"chat", {}, false, longest_wait, is_due}}});
    wish = roster.want(1);
    CHECK_FALSE(roster.next(start));
    CHECK(roster.waits_for_namesake(1));
  }

  model_roster roster;
  model_roster::wish wish = {};
};

} // namespace

TEST_CASE(
  "a model waits for one of its name that is listed no more, and after ten minutes ends what nobody reads of it") {
  replaced it;
  CHECK(it.roster.wake_at() == start + 10min);
  CHECK_FALSE(it.roster.next(start + 10min - 1ms));
  const auto next = it.roster.next(start + 10min);
  REQUIRE(next);
  CHECK(next->what == kind::end_unread);
  CHECK(next->model == 1);
  CHECK_FALSE(it.roster.next(start + 10min)); // said once
  CHECK_FALSE(it.roster.refuse_late(start + 10min));
  it.roster.end_use(0, start + 10min);
  CHECK(carry_out(it.roster, start + 10min) == "unload 0, load 1");
  CHECK(it.roster.settled(it.wish));
  CHECK_FALSE(it.roster.why(1));
}

TEST_CASE("who waits for a model while answers of another of its name are read is refused, and it is tried again") {
  replaced it(30s);
  CHECK(it.roster.wake_at() == start + 30s);
  REQUIRE(it.roster.next(start + 30s)->what == kind::end_unread);
  CHECK(it.roster.wake_at() == start + 35s);
  CHECK_FALSE(it.roster.refuse_late(start + 35s - 1ms));
  CHECK(it.roster.refuse_late(start + 35s));
  CHECK(it.roster.settled(it.wish));
  CHECK(it.roster.now(1) == state::failed);
  CHECK(it.roster.why(1)->code == errc::overloaded);
  CHECK(it.roster.why(1)->message == "the answers of the model whose place it takes did not end in 35 s");
  CHECK(it.roster.uses(0) == 1); // it goes on
  it.roster.leave(it.wish);
  const auto again = *it.roster.wake_at();
  CHECK(again == start + 35s + 250ms);
  CHECK_FALSE(it.roster.next(again));
  CHECK(it.roster.wake_at() == again + 30s); // as long as the first time
  CHECK(it.roster.next(again + 30s)->what == kind::end_unread);
  it.roster.end_use(0, again + 30s);
  CHECK(carry_out(it.roster, again + 30s) == "unload 0, load 1");
  CHECK_FALSE(it.roster.comes_back(1));
}

TEST_CASE("a model that only requests load is not tried again once it was refused and nobody waits for it") {
  replaced it(30s, false);
  REQUIRE(it.roster.next(start + 30s)->what == kind::end_unread);
  REQUIRE(it.roster.refuse_late(start + 35s));
  CHECK_FALSE(it.roster.comes_back(1));
  it.roster.leave(it.wish);
  CHECK_FALSE(it.roster.wake_at());
  it.roster.end_use(0, start + 36s);
  CHECK(carry_out(it.roster, start + 1min) == "unload 0");
  const auto wish = it.roster.want(1); // the next request
  CHECK(carry_out(it.roster, start + 1min) == "load 1");
  CHECK(it.roster.settled(wish));
}

TEST_CASE("a list changes: models come, go once nobody uses them, are called otherwise, and stand in another order") {
  auto roster = three();
  load(roster, 0);
  load(roster, 1);
  roster.begin_use(0);
  CHECK_THROWS_AS(roster.list({{1, {"embed", {"x"}}}, {std::nullopt, {"x"}}}), failure);
  CHECK(roster.all() == std::vector<std::size_t>{0, 1, 2});
  roster.list({{2, {"rank"}}, {1, {"embed", {"vectors"}}}, {std::nullopt, {"new"}}});
  CHECK(roster.all() == std::vector<std::size_t>{2, 1, 3});
  CHECK(roster.find("") == 2);
  CHECK_FALSE(roster.find("chat"));
  CHECK_FALSE(roster.find("gpt-4o"));
  CHECK(roster.find("vectors") == 1);
  CHECK(roster.find("new") == 3);
  CHECK(carry_out(roster).empty()); // an answer is not cut
  load(roster, 3);
  roster.end_use(0, start);
  CHECK(carry_out(roster) == "unload 0");
  CHECK(roster.now(1) == state::ready);
}

TEST_CASE("who waits for a model that is not listed any more waits no longer, and it does not come back") {
  for (const bool is_loading : {false, true}) {
    auto roster = three();
    const auto wish = roster.want(0);
    if (is_loading)
      REQUIRE(roster.next(start)->model == 0);
    roster.list({{1, {"embed"}}});
    if (is_loading) {
      CHECK_FALSE(roster.settled(wish));
      roster.loaded(0, start);
    }
    CHECK(roster.settled(wish));
    roster.leave(wish);
    CHECK(carry_out(roster) == (is_loading ? "unload 0" : ""));
  }
  auto roster = three();
  load(roster, 0);
  roster.unload(0);
  REQUIRE(roster.next(start)->what == kind::unload);
  const auto behind = roster.want(0);
  roster.list({{1, {"embed"}}});
  roster.unloaded(0, start);
  CHECK(roster.settled(behind));
  roster.leave(behind);
  load(roster, 1);
  roster.died(1, device_lost, start);
  roster.list({{2, {"rank"}}});
  CHECK(carry_out(roster) == "unload 1");
  CHECK_FALSE(roster.wake_at());
}

TEST_CASE("a model in the place of another of its name is loaded when that has gone, and holds up nobody else") {
  auto roster = three();
  load(roster, 0);
  roster.begin_use(0);
  roster.list({{std::nullopt, {"chat"}}, {1, {"embed"}}});
  REQUIRE(roster.find("chat") == 3);
  const auto wish = roster.want(3), other = roster.want(1);
  CHECK(carry_out(roster) == "load 1");
  CHECK(roster.settled(other));
  CHECK_FALSE(roster.settled(wish));
  roster.end_use(0, start);
  CHECK(carry_out(roster) == "unload 0, load 3");
  CHECK(roster.settled(wish));
}
