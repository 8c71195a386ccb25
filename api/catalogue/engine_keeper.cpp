// The keeper's thread of engine_house: it starts and ends engines as model_roster says.
#include "api/catalogue/engine_house.hpp"
#include "api/catalogue/used_request.hpp"

#include "runtime/support/machine/threads.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include <malloc.h>

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;
using state = model_roster::state;

constexpr std::chrono::milliseconds unread_for = std::chrono::minutes(1);

error error_in_flight() {
  try {
    throw;
  } catch (const failure& f) {
    return f.what_failed();
  } catch (const std::bad_alloc&) {
    return {errc::out_of_memory, "there is not enough memory to load the model", {}};
  } catch (const std::exception& e) {
    return {errc::internal, std::string("the model could not be loaded: ") + e.what(), {}};
  }
}

} // namespace

void engine_house::open() {
  keeper_ = std::jthread([this] {
    name_thread("models");
    keep_house();
  });
}

void engine_house::close() {
  if (is_given)
    return;
  {
    const std::lock_guard held(mutex);
    stopping = true;
    changed.notify_all();
  }
  if (keeper_.joinable())
    keeper_.join();
  for (std::size_t i = 0; i < residents.size(); ++i) { // at the same time: each may have prefixes to write
    auto& ends = residents[i].ends;
    if (ends.joinable())
      ends.join();
    try {
      ends = std::jthread([this, i] { end_engine(i); });
    } catch (const std::system_error&) { // there is no thread
      end_engine(i);
    }
  }
  for (auto& each : residents)
    if (each.ends.joinable())
      each.ends.join();
}

void engine_house::keep_house() {
  lock held(mutex);
  while (!stopping) {
    see_told(held);
    for (auto& each : residents)
      if (each.start && roster.settled(*each.start)) {
        roster.leave(*std::exchange(each.start, std::nullopt));
        changed.notify_all();
      }
    if (stopping)
      return;
    if (roster.refuse_late(clock::now())) {
      changed.notify_all();
      continue;
    }
    if (const auto next = roster.next(clock::now())) {
      switch (next->what) {
        case model_roster::action::kind::load: load(held, *next); break;
        case model_roster::action::kind::unload: unload(held, next->model); break;
        case model_roster::action::kind::end_unread: end_unread(held, next->model); break;
      }
      changed.notify_all();
      continue;
    }
    if (std::ranges::any_of(residents, &resident::told))
      continue;
    if (const auto at = roster.wake_at()) // whoever changes something notifies
      changed.wait_until(held, *at);
    else
      changed.wait(held);
  }
}

/// What engines have told since.
void engine_house::see_told(lock& held) {
  using stage = load_status::stage;
  for (std::size_t i = 0; i < residents.size(); ++i) {
    if (!std::exchange(residents[i].told, false))
      continue;
    const auto status = residents[i].status;
    const auto why = status.why.value_or(error{errc::unavailable, "the engine was stopped", {}});
    if (roster.now(i) == state::loading && status.now == stage::ready)
      accept(held, i);
    else if (roster.now(i) == state::loading && status.now != stage::loading)
      give_up(held, i, why);
    else if (is_plural && status.now == stage::failed)
      roster.died(i, why, clock::now());
    changed.notify_all();
  }
}

void engine_house::accept(lock& held, std::size_t model) {
  try {
    const auto info = residents[model].running->model();
    const auto aliases = roster.entry(model).aliases;
    const bool leaves = rules.on_demand && !roster.entry(model).stays;
    held.unlock();
    const auto made = std::make_shared<served_model>(*info);
    made->aliases = aliases;
    made->leaves = leaves;
    if (hooks.accept)
      hooks.accept(*made);
    held.lock();
    made->aliases = roster.entry(model).aliases; // which may be others since
    residents[model].model = made;
    roster.loaded(model, clock::now());
    connect_watchers(model, &*residents[model].running);
  } catch (...) {
    const auto why = error_in_flight();
    if (!held.owns_lock())
      held.lock();
    give_up(held, model, why);
  }
}

void engine_house::give_up(lock& held, std::size_t model, error why) {
  held.unlock();
  end_engine(model);
  held.lock();
  roster.failed(model, std::move(why), clock::now());
}

void engine_house::load(lock& held, const model_roster::action& what) {
  auto& one = residents[what.model];
  one.status = {};
  one.told = false;
  auto options = one.options;
  options.must_fit = what.others_may_leave;
  const auto run = ++one.run;
  held.unlock();
  try {
    auto started = engine::start(std::move(options),
                                 [weak = weak_from_this(), model = what.model, run](const load_status& status) {
                                   if (const auto house = weak.lock())
                                     house->heard(model, run, status);
                                 });
    held.lock();
    one.running = std::move(started);
  } catch (...) {
    const auto why = error_in_flight();
    if (!held.owns_lock())
      held.lock();
    roster.failed(what.model, why, clock::now());
  }
}

void engine_house::unload(lock& held, std::size_t model) {
  const auto end = [this, model] {
    end_engine(model);
    const lock at_end(mutex);
    roster.unloaded(model, clock::now());
    changed.notify_all();
  };
  residents[model].model = nullptr;
  try {
    residents[model].ends = std::jthread(end); // the one before has ended
  } catch (const std::system_error&) {         // there is no thread: everybody waits
    held.unlock();
    end();
    held.lock();
  }
}

/// Of models whose place another takes: of what one client does not read, the others must not wait for ever.
void engine_house::end_unread(lock& held, std::size_t for_model) {
  const auto& is = roster.entry(for_model);
  const auto longest = is.longest_wait.count() > 0 ? std::min(is.longest_wait, unread_for) : unread_for;
  const auto before = clock::now() - longest;
  std::vector<std::shared_ptr<used_request>> all; // dropped without the mutex
  for (std::size_t i = 0; i < residents.size(); ++i)
    if (!roster.is_listed(i) && roster.entry(i).name == is.name)
      for (const auto& [_, each] : residents[i].unread)
        if (auto one = each.since <= before ? each.which.lock() : nullptr)
          all.push_back(std::move(one));
  for (const auto& one : all)
    one->cut({errc::unavailable,
              "the answer was ended: it was not read, and another model `" + is.name +
                "`, whose requests waited for it, takes the place of its own",
              {}});
  held.unlock();
  all.clear();
  held.lock();
}

/// Its memory is free when this returns.
void engine_house::end_engine(std::size_t model) {
  lock held(mutex);
  auto& one = residents[model];
  changed.wait(held, [&] { return one.calls == 0; });
  connect_watchers(model, nullptr);
  auto ended = std::exchange(one.running, std::nullopt);
  one.model = nullptr;
  ++one.run; // nothing more is heard of it
  held.unlock();
  if (!ended)
    return;
  ended->stop();
  ended.reset();
  ::malloc_trim(0);
}

void engine_house::heard(std::size_t model, std::uint64_t run, const load_status& status) {
  const auto is_old = [&] { return residents[model].run != run; };
  std::string name;
  {
    const lock held(mutex);
    if (is_old())
      return;
    name = name_of(model);
  }
  if (hooks.progress)
    hooks.progress(name, status);
  const lock held(mutex);
  auto& one = residents[model];
  if (is_old() || !status.news.empty())
    return;
  one.status = status;
  if (status.now == load_status::stage::loading)
    return;
  one.told = true;
  changed.notify_all();
}

} // namespace troupe
