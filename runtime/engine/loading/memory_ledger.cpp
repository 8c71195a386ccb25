#include "runtime/engine/loading/memory_ledger.hpp"

#include "runtime/execution/device.hpp"
#include "runtime/support/machine/available_memory.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace troupe {

// -- memory_entry -----------------------------------------------------------------------------------------------------

memory_entry::memory_entry(memory_entry&& other) noexcept
  : ledger_(std::exchange(other.ledger_, nullptr)), number_(other.number_) {}

memory_entry& memory_entry::operator=(memory_entry&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(number_, other.number_);
  return *this;
}

memory_entry::~memory_entry() {
  if (ledger_)
    ledger_->give_back(number_);
}

// -- memory_ledger ----------------------------------------------------------------------------------------------------

memory_ledger::planning::planning(memory_ledger& ledger, const std::function<state()>& look)
  : ledger_(ledger), lock_(ledger.mutex_), now_(look()) {}

// What the process has taken since the first promise counts as taken from the promises: `available` lacks it already.
std::size_t memory_ledger::planning::left() const {
  const auto promised = ledger_.promised_;
  const auto grown = std::max<std::int64_t>(0, now_.used - ledger_.used_before_);
  const auto taken = std::min(promised, static_cast<std::size_t>(grown));
  return now_.available - std::min(now_.available, promised - taken);
}

memory_entry memory_ledger::planning::reserve(std::string what, std::size_t bytes) {
  if (ledger_.rows_.empty())
    ledger_.used_before_ = now_.used;
  const auto number = ++ledger_.last_number_;
  ledger_.rows_.push_back({number, {std::move(what), bytes}});
  ledger_.promised_ += bytes;
  return memory_entry(&ledger_, number);
}

void memory_ledger::give_back(std::uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(rows_, number, &row::number);
  promised_ -= found->promise.bytes;
  rows_.erase(found);
}

std::vector<memory_promise> memory_ledger::promises() const {
  const std::lock_guard lock(mutex_);
  std::vector<memory_promise> all;
  for (const auto& each : rows_)
    all.push_back(each.promise);
  return all;
}

// -- ledgers of the process -------------------------------------------------------------------------------------------

// They are never destroyed: engines in static storage may end after them.
memory_ledger::planning plan_host_memory() {
  static auto& ledger = *new memory_ledger;
  return ledger.plan([]() -> memory_ledger::state {
    return {available_memory(), static_cast<std::int64_t>(anonymous_memory())};
  });
}

// A device tells only what nobody has taken: what it has less than before is taken by this process, or by another.
memory_ledger::planning plan_memory_of(const device& device) {
  if (!device.capabilities().own_memory)
    return plan_host_memory();
  static std::mutex mutex;
  static auto& ledgers = *new std::map<std::string, memory_ledger>;
  const auto ledger = [&]() -> memory_ledger& {
    const std::lock_guard lock(mutex);
    return ledgers[device.description()];
  };
  return ledger().plan([&]() -> memory_ledger::state {
    const auto available = device.available_memory();
    return {available, -static_cast<std::int64_t>(available)};
  });
}

bool share_memory(const device& one, const device& other) {
  const bool own = one.capabilities().own_memory;
  return own == other.capabilities().own_memory && (!own || one.description() == other.description());
}

} // namespace troupe
