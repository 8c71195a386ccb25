#include "runtime/checkpoint/packed/weight_pager.hpp"

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/support/machine/threads.hpp"

#include <algorithm>
#include <iterator>

#include <sys/resource.h>

namespace troupe {

namespace {

std::size_t bytes_of_places(std::span<const packed_place> places) {
  std::size_t sum = 0;
  for (const auto& place : places)
    sum += place.bytes;
  return sum;
}

std::vector<std::vector<std::size_t>> expert_sizes(std::span<const paged_unit> units) {
  std::vector<std::vector<std::size_t>> sizes;
  for (const auto& unit : units) {
    auto& own = sizes.emplace_back();
    for (const auto& expert : unit.experts)
      own.push_back(bytes_of_places(expert));
  }
  return sizes;
}

std::size_t missing_bytes(const packed_file& file, std::span<const packed_place> places) {
  std::size_t sum = 0;
  for (const auto& place : places)
    sum += file.missing_bytes(place);
  return sum;
}

/// Asks for what is not in memory exactly: where it is only accessed, the system reads on into what may not be wanted.
void ask_for(const packed_file& file, std::span<const packed_place> places) {
  for (const auto& place : places)
    if (!file.is_in_memory(place))
      file.prefetch(place);
}

/// Page faults of this process so far that had to read a file.
long faults_with_reads() {
  rusage use{};
  return getrusage(RUSAGE_SELF, &use) == 0 ? use.ru_majflt : 0;
}

} // namespace

weight_pager::weight_pager(std::shared_ptr<const packed_file> file, std::vector<paged_unit> units,
                           std::optional<std::size_t> expert_bytes)
  : file_(std::move(file)),
    units_(std::move(units)),
    next_streamed_(units_.size(), none),
    places_(units_.size(), place::disk),
    users_(units_.size(), 0),
    looked_(units_.size(), false) {
  const auto count = units_.size();
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t ahead = 1; ahead <= count && next_streamed_[i] == none; ++ahead)
      if (units_[(i + ahead) % count].streamed)
        next_streamed_[i] = (i + ahead) % count;
  streams_ = std::ranges::any_of(units_, &paged_unit::streamed);
  if (expert_bytes)
    experts_.emplace(expert_sizes(units_), *expert_bytes);
  reader_ = std::thread([this] { // now, as a failure while it loads costs nobody a request
    name_thread("weights");
    work();
  });
}

weight_pager::~weight_pager() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    orders_.clear();
  }
  told_.notify_all();
  if (reader_.joinable())
    reader_.join();
}

bool weight_pager::is_settled(std::size_t unit) const {
  return !streams_ &&
    std::ranges::all_of(units_[unit].dense, [&](const packed_place& p) { return file_->was_read(p); });
}

void weight_pager::begin_pass() {
  const auto faults = faults_with_reads();
  const auto before = faults_.exchange(faults);
  bool settled = settled_;
  if (!settled) {
    settled = true;
    for (std::size_t i = 0; settled && i < units_.size(); ++i)
      settled = is_settled(i);
    settled_ = settled;
  }
  // Until a pass has read nothing, the system may have dropped pages of what is left to it.
  watching_ = !settled || faults != before;
}

void weight_pager::move(std::size_t from, std::size_t to, kernels::thread_pool& pool) {
  if (from == none || to < from)
    begin_pass();
  if (settled_ && !watching_) {
    const std::lock_guard lock(mutex_);
    if (from != none)
      --users_[from];
    ++users_[to];
    return;
  }
  const auto& unit = units_[to];
  bool looked = false;
  {
    const std::lock_guard lock(mutex_);
    std::erase(orders_, std::pair(order::look, to));
    looked = looked_[to];
    looked_[to] = false;
    const auto next = next_streamed_[to];
    if (from != none && --users_[from] == 0 && units_[from].streamed && from != to && from != next)
      tell(order::drop, from);
    ++users_[to];
    if (unit.streamed)
      tell(order::read, to);
    if (next != none && next != to)
      tell(order::read, next);
    const auto after = (to + 1) % units_.size();
    if (!units_[after].streamed && after != to && !units_[after].dense.empty())
      tell(order::look, after);
  }
  told_.notify_one();
  try {
    if (unit.streamed)
      wait_for(to);
    else if (!looked)
      read_bytes_ += missing_bytes(*file_, unit.dense);
    if (!unit.experts.empty())
      ask_for(*file_, unit.dense); // and not for the experts beside them
    file_->read(unit.dense, pool);
  } catch (...) {
    leave(to);
    throw;
  }
}

void weight_pager::leave(std::size_t unit) {
  const std::lock_guard lock(mutex_);
  if (--users_[unit] == 0 && units_[unit].streamed)
    tell(order::drop, unit);
  told_.notify_one();
}

void weight_pager::wait_for(std::size_t unit) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return places_[unit] == place::memory || places_[unit] == place::unreadable; });
  if (places_[unit] == place::memory)
    return;
  places_[unit] = place::disk; // the next walk tries again
  lock.unlock();
  file_->refuse_reading();
}

void weight_pager::tell(order what, std::size_t unit) {
  if (what == order::read) {
    std::erase(orders_, std::pair(order::drop, unit));
    if (places_[unit] != place::disk)
      return;
    places_[unit] = place::asked;
  }
  orders_.emplace_back(what, unit);
}

void weight_pager::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    told_.wait(lock, [this] { return stop_ || !orders_.empty(); });
    if (stop_)
      return;
    const auto [what, unit] = orders_.front();
    orders_.pop_front();
    obey(what, unit, lock);
  }
}

void weight_pager::obey(order what, std::size_t unit, std::unique_lock<std::mutex>& lock) {
  const auto& places = units_[unit].dense;
  if (what == order::drop) {
    if (users_[unit] > 0 || places_[unit] != place::memory)
      return;
    places_[unit] = place::disk;
    lock.unlock();
    for (const auto& p : places)
      file_->drop(p);
    lock.lock();
    return;
  }
  if (what == order::look)
    looked_[unit] = true;
  lock.unlock();
  bool read = true;
  if (what == order::read) {
    read_bytes_ += bytes_of_places(places);
    read = bring(places);
  } else {
    read_bytes_ += missing_bytes(*file_, places);
    if (!units_[unit].experts.empty())
      ask_for(*file_, places);
    for (const auto& p : places)
      if (!file_->is_in_memory(p))
        file_->populate(p);
  }
  lock.lock();
  if (what == order::read) {
    places_[unit] = read ? place::memory : place::unreadable;
    done_.notify_all();
  }
}

bool weight_pager::bring(std::span<const packed_place> places) {
  for (const auto& p : places) // all at once, so that the disk is never idle
    file_->prefetch(p);
  return std::ranges::all_of(places, [&](const packed_place& p) { return file_->populate(p); });
}

void weight_pager::choose(std::size_t unit, std::span<const int> experts, kernels::thread_pool& pool) {
  const auto& all = units_[unit].experts;
  if (all.empty())
    return;
  std::vector<packed_place> chosen, missing;
  for (const int e : experts)
    std::ranges::copy(all[static_cast<std::size_t>(e)], std::back_inserter(chosen));
  const bool new_ones = !std::ranges::all_of(chosen, [&](const packed_place& p) { return file_->was_read(p); });
  if (!experts_ && !new_ones && !watching_)
    return;
  if (experts_) {
    std::vector<expert_cache::expert> leave;
    {
      const std::lock_guard lock(mutex_);
      leave = experts_->choose(unit, experts);
    }
    for (const auto& [u, n] : leave)
      for (const auto& p : units_[u].experts[n])
        file_->drop(p);
  }
  std::ranges::copy_if(chosen, std::back_inserter(missing),
                       [&](const packed_place& p) { return !file_->is_in_memory(p); });
  if (!missing.empty()) {
    read_bytes_ += bytes_of_places(missing);
    file_->require_whole();
    if (!bring(missing))
      file_->refuse_reading();
  }
  if (new_ones)
    file_->read(chosen, pool);
}

weight_walk::weight_walk(std::shared_ptr<weight_pager> pager, kernels::thread_pool* pool)
  : pager_(pool != nullptr ? std::move(pager) : nullptr), pool_(pool) {}

weight_walk::~weight_walk() {
  if (pager_ && at_ != weight_pager::none)
    pager_->leave(at_);
}

void weight_walk::go(std::size_t unit) {
  const auto from = std::exchange(at_, weight_pager::none);
  pager_->move(from, unit, *pool_);
  at_ = unit;
}

} // namespace troupe
