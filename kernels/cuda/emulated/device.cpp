#include "kernels/cuda/device.hpp"

#include "kernels/cuda/emulated/memory.hpp"
#include "kernels/cuda/emulated/queues.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace troupe::kernels::cuda {

namespace emulated {

namespace {

using clock = std::chrono::steady_clock;

constexpr const char* while_recording = ": operation not permitted when stream is capturing";

/// What an event was last recorded as: whether the stream has come there, and when.
struct event_state : std::atomic<bool> {
  using std::atomic<bool>::atomic;
  void operator=(bool) {
    at = clock::now();
    store(true);
  }
  clock::time_point at;
};
using moment = std::shared_ptr<event_state>;

struct step {
  work run;
  moment after; // or null
};

/// What is recorded of a stream, by whom.
struct recording {
  std::vector<work> steps;
  std::thread::id by;
  bool broken = false; // by a call that may not be made meanwhile
};

struct queue {
  std::deque<step> steps;
  std::optional<recording> recorded;
  clock::time_point timer;
};

/// Memory that nobody may touch: what is behind every piece, and what has been given back. Whoever writes there is found
/// out at the next wait or look; AddressSanitizer sees at once who reads or writes there.
constexpr std::size_t guard_bytes = 1024;
constexpr unsigned char forbidden_byte = 0xff; // NaN

void forbid(unsigned char* at, std::size_t bytes) {
  std::memset(at, forbidden_byte, bytes);
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(at, bytes);
#endif
}

void allow([[maybe_unused]] unsigned char* at, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(at, bytes);
#endif
}

bool is_untouched([[maybe_unused]] const unsigned char* at, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#else
  return std::all_of(at, at + bytes, [](unsigned char b) { return b == forbidden_byte; });
#endif
}

/// Memory as it came from the host, and the device's piece of it.
struct piece {
  void* given = nullptr;
  unsigned char* memory = nullptr;
  std::size_t bytes = 0;
};

/// The device: all streams, the memory it knows of, and the thread that works where work is deferred.
class machine {
public:
  machine() = default;
  ~machine() {
    for (const auto& p : returned_)
      release(p);
  }
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  void add(queue* q) {
    std::lock_guard lock(mutex_);
    queues_.push_back(q);
  }

  void remove(queue* q) {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return q->steps.empty(); });
    std::erase(queues_, q);
  }

  void push(queue& q, step s) {
    std::unique_lock lock(mutex_);
    complain();
    if (q.recorded) {
      if (s.after) { // it would be of this recording only if it had been recorded in it
        q.recorded->broken = true;
        throw device_error(std::string("cudaStreamWaitEvent") + while_recording);
      }
      return q.recorded->steps.push_back(std::move(s.run));
    }
    if (!deferring_) {
      std::lock_guard one(running_); // several threads may call
      lock.unlock();
      return s.run();
    }
    q.steps.push_back(std::move(s));
    last_push_ = clock::now();
    wake_.notify_one();
  }

  void start_recording(queue& q) {
    std::lock_guard lock(mutex_);
    complain();
    q.recorded = recording{{}, std::this_thread::get_id()};
  }

  std::vector<work> take_recording(queue& q) {
    std::lock_guard lock(mutex_);
    auto taken = std::move(q.recorded).value();
    q.recorded.reset();
    if (taken.broken)
      throw device_error("cudaStreamEndCapture: operation failed due to a previous error during capture");
    return std::move(taken.steps);
  }

  void drop_recording(queue& q) {
    std::lock_guard lock(mutex_);
    q.recorded.reset();
  }

  bool is_recorded(const queue& q) {
    std::lock_guard lock(mutex_);
    return q.recorded.has_value();
  }

  /// Spoils what the calling thread records, and what is recorded of `q`, if anything; whether there is such.
  bool spoil_recordings(const queue* q = nullptr) {
    std::lock_guard lock(mutex_);
    bool any = false;
    for (auto* one : queues_)
      if (one->recorded && (one == q || one->recorded->by == std::this_thread::get_id()))
        any = one->recorded->broken = true;
    return any;
  }

  /// For calls that wait or allocate: refused to a thread that is recording, and for a stream that is being recorded.
  void refuse_while_recording(const char* call, const queue* q = nullptr) {
    if (spoil_recordings(q))
      throw device_error(call + std::string(while_recording));
  }

  template <class Done>
  void wait_until(const Done& done) {
    if (std::this_thread::get_id() == worker_.get_id())
      return; // memory that its last work lets go of
    std::unique_lock lock(mutex_);
    ++waiting_;
    wake_.notify_one();
    idle_.wait(lock, [&] { return done() || failed_; });
    --waiting_;
    complain();
  }

  void wait_for_all() {
    wait_until([&] {
      for (auto* q : queues_)
        if (!q->steps.empty())
          return false;
      return true;
    });
  }

  void defer(std::uint64_t seed) {
    std::lock_guard lock(mutex_);
    deferring_ = true;
    random_.seed(seed);
    worker_ = std::thread([this] { work_on(); });
  }

  void undefer() {
    {
      std::unique_lock lock(mutex_);
      stopping_ = true;
      wake_.notify_one();
    }
    worker_.join();
    std::lock_guard lock(mutex_);
    worker_ = {};
    deferring_ = stopping_ = failed_ = false;
    fail_in_ = 0;
  }

  void fail_after(std::uint64_t n) {
    std::lock_guard lock(mutex_);
    fail_in_ = n;
  }

  void check() {
    std::lock_guard lock(mutex_);
    complain();
  }

  // -- memory -----------------------------------------------------------------------------------------------------------

  void own(const piece& p) {
    std::lock_guard lock(mutex_);
    known_.emplace(p.memory, p);
  }

  /// What was given back last stays for a while, forbidden to all.
  void disown(unsigned char* memory) {
    std::lock_guard lock(mutex_);
    const auto found = known_.find(memory);
    const auto p = found->second;
    look_behind(p);
    known_.erase(found);
    if (p.bytes > most_returned_bytes)
      return release(p);
    forbid(p.memory, p.bytes);
    returned_.push_back(p);
    returned_bytes_ += p.bytes;
    while (returned_bytes_ > most_returned_bytes || returned_.size() > most_returned) {
      const auto oldest = returned_.front();
      returned_.pop_front();
      returned_bytes_ -= oldest.bytes;
      look_into(oldest);
      release(oldest);
    }
  }

  void look_behind_all() {
    std::lock_guard lock(mutex_);
    for (const auto& [at, p] : known_)
      look_behind(p);
    say_what_was_written();
  }

  void forget_what_was_written() {
    std::lock_guard lock(mutex_);
    written_.clear();
  }

  void look_everywhere() {
    std::lock_guard lock(mutex_);
    for (const auto& [at, p] : known_)
      look_behind(p);
    for (const auto& p : returned_)
      look_into(p);
    say_what_was_written();
  }

  /// Whether it is device or pinned memory.
  bool knows(const void* at) {
    std::lock_guard lock(mutex_);
    auto next = known_.upper_bound(static_cast<const unsigned char*>(at));
    if (next == known_.begin())
      return false;
    --next;
    return static_cast<const unsigned char*>(at) < next->first + next->second.bytes;
  }

  std::atomic<std::uint64_t> waits{0}, launches{0}, replays{0}, allocations{0};

private:
  void complain() const {
    if (failed_)
      throw device_error("cudaLaunchKernel: " + why_, true);
  }

  static constexpr std::size_t most_returned_bytes = 16 << 20, most_returned = 1024;

  static void release(const piece& p) {
    allow(p.memory, p.bytes + guard_bytes);
    std::free(p.given);
  }

  void look_behind(const piece& p) {
    if (!is_untouched(p.memory + p.bytes, guard_bytes))
      written_ = "something was written beyond the " + std::to_string(p.bytes) + " bytes of a piece of device memory";
  }

  void look_into(const piece& p) {
    if (!is_untouched(p.memory, p.bytes + guard_bytes))
      written_ = "something was written to " + std::to_string(p.bytes) + " bytes of device memory that had been freed";
  }

  void say_what_was_written() const {
    if (!written_.empty())
      throw device_error(written_);
  }

  void work_on() {
    std::unique_lock lock(mutex_);
    queue* favourite = nullptr;
    for (;;) {
      // Late, so that whoever did not wait for work is ahead of it: once the host waits, or has had nothing to queue for a
      // while.
      const bool patient = !stopping_ && waiting_ == 0 && random_() % 16 != 0;
      if (patient && clock::now() - last_push_ < std::chrono::microseconds(300)) {
        wake_.wait_for(lock, std::chrono::microseconds(100));
        continue;
      }
      std::vector<queue*> ready;
      for (auto* q : queues_)
        if (!q->steps.empty() && (!q->steps.front().after || *q->steps.front().after))
          ready.push_back(q);
      if (ready.empty()) {
        if (stopping_)
          return;
        wake_.wait_for(lock, std::chrono::milliseconds(10));
        continue;
      }
      if (random_() % 4 == 0 || std::find(ready.begin(), ready.end(), favourite) == ready.end())
        favourite = ready[random_() % ready.size()];
      auto next = std::move(favourite->steps.front().run);
      lock.unlock();
      std::string error = run(next);
      next = nullptr;
      lock.lock();
      if (!error.empty())
        fail(std::move(error));
      else
        favourite->steps.pop_front();
      idle_.notify_all();
    }
  }

  std::string run(const work& next) {
    try {
      if (fail_in_ > 0 && --fail_in_ == 0)
        return "an illegal memory access was encountered";
      next();
      return {};
    } catch (const std::exception& e) {
      return e.what();
    }
  }

  void fail(std::string why) {
    failed_ = true;
    why_ = std::move(why);
    for (auto* q : queues_)
      q->steps.clear();
  }

  std::mutex mutex_;
  std::recursive_mutex running_;
  std::condition_variable wake_, idle_;
  std::vector<queue*> queues_;
  std::map<const unsigned char*, piece> known_;
  std::deque<piece> returned_;
  std::size_t returned_bytes_ = 0;
  std::string written_; // where it must not be
  std::thread worker_;
  std::mt19937_64 random_;
  clock::time_point last_push_;
  int waiting_ = 0;
  bool deferring_ = false, stopping_ = false, failed_ = false;
  std::atomic<std::uint64_t> fail_in_{0};
  std::string why_;
};

machine& device() {
  static machine instance;
  return instance;
}

queue& of(const stream& s) { return *static_cast<queue*>(s.native()); }

moment& of(const event& e) { return *static_cast<moment*>(e.native()); }

/// Zeros, of which only those that are written take memory.
buffer allocate_known(std::size_t bytes, const char* call) {
  constexpr std::size_t most = std::size_t(1) << 34, alignment = 256;
  device().refuse_while_recording(call);
  device().check();
  piece p{nullptr, nullptr, bytes};
  p.given = bytes > most ? nullptr : std::calloc(alignment + bytes + guard_bytes, 1);
  if (p.given == nullptr)
    throw device_error(std::string(call) + " (" + std::to_string(bytes) + " bytes): out of memory");
  p.memory = static_cast<unsigned char*>(p.given);
  p.memory += alignment - reinterpret_cast<std::uintptr_t>(p.memory) % alignment;
  forbid(p.memory + bytes, guard_bytes);
  device().own(p);
  ++device().allocations;
  return {p.memory, [](void* memory) {
            device().spoil_recordings(); // may not be called then; nobody looks at what it returns
            try {
              device().wait_for_all(); // as cudaFree does
            } catch (const device_error&) { // whoever uses the device hears of it
            }
            device().disown(static_cast<unsigned char*>(memory));
          }};
}

/// As the run-time library does, reads what is in pageable memory before it returns, and has written there by then.
void copy(const stream& on, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t bytes,
          std::size_t rows) {
  if (bytes == 0)
    return;
  const auto rows_copied = [=](const void* source, std::size_t pitch) {
    for (std::size_t i = 0; i < rows; ++i)
      std::memcpy(static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(source) + i * pitch, bytes);
  };
  if (!device().knows(from) && device().is_recorded(of(on)))
    throw device_error("cudaMemcpyAsync: from pageable memory, in a recording that outlives it");
  if (device().knows(from)) {
    enqueue(on, [=] { rows_copied(from, from_pitch); });
    if (!device().knows(to))
      on.synchronise();
    return;
  }
  auto kept = std::make_shared<std::vector<char>>(rows * bytes);
  for (std::size_t i = 0; i < rows; ++i)
    std::memcpy(kept->data() + i * bytes, static_cast<const char*>(from) + i * from_pitch, bytes);
  enqueue(on, [=] { rows_copied(kept->data(), bytes); });
}

} // namespace

void enqueue(const stream& on, work what) { device().push(of(on), {std::move(what), nullptr}); }

void start_recording(const stream& on) { device().start_recording(of(on)); }

std::vector<work> take_recording(const stream& on) { return device().take_recording(of(on)); }

void drop_recording(const stream& on) { device().drop_recording(of(on)); }

void check_memory() { device().look_everywhere(); }

void forget_what_was_written() { device().forget_what_was_written(); }

deferred_work::deferred_work(std::uint64_t seed) { device().defer(seed); }
deferred_work::~deferred_work() { device().undefer(); }
void deferred_work::fail_after(std::uint64_t n) { device().fail_after(n); }

host_counts counted() {
  auto& d = device();
  return {d.waits, d.launches, d.replays, d.allocations};
}

void begin_launch(const char* kernel, unsigned x, unsigned y, unsigned threads, std::size_t shared_bytes) {
  if (x > most_grid_x || y > most_grid_y || threads > most_threads || shared_bytes > most_shared_bytes)
    throw device_error("launch (" + std::string(kernel) + "): invalid configuration argument: " + std::to_string(x) +
                       " x " + std::to_string(y) + " blocks of " + std::to_string(threads) + " threads and " +
                       std::to_string(shared_bytes) + " bytes");
  ++device().launches;
}

void count_replay() { ++device().replays; }

} // namespace emulated

using emulated::device;

int device_count(std::string*) { return 1; }

bool is_emulated() { return true; }

device_info select_device(int) { return {"emulated", 9, 0, 4, emulated::memory_size, emulated::available_memory()}; }

stream::stream() {
  auto* made = new emulated::queue;
  native_ = made;
  device().add(made);
}

stream::~stream() {
  auto* mine = &emulated::of(*this);
  device().remove(mine);
  delete mine;
}

void stream::synchronise() const {
  ++device().waits;
  device().refuse_while_recording("cudaStreamSynchronize", &emulated::of(*this));
  device().wait_until([&] { return emulated::of(*this).steps.empty(); });
  device().look_behind_all();
}

void stream::start_timer() {
  synchronise();
  emulated::of(*this).timer = emulated::clock::now();
}

float stream::stop_timer() {
  synchronise();
  return std::chrono::duration<float, std::milli>(emulated::clock::now() - emulated::of(*this).timer).count();
}

event::event(bool) : native_(new emulated::moment(std::make_shared<emulated::event_state>(true))) {}
event::~event() { delete &emulated::of(*this); }

void event::record(const stream& on) {
  if (device().is_recorded(emulated::of(on))) // that would be a fork within the recording
    throw device_error("cudaEventRecord: into a recording, which this emulation does not know");
  auto now = std::make_shared<emulated::event_state>(false);
  emulated::of(*this) = now;
  emulated::enqueue(on, [now] { *now = true; });
}

bool event::happened() const {
  device().check();
  return *emulated::of(*this);
}

void event::synchronise() const {
  ++device().waits;
  device().refuse_while_recording("cudaEventSynchronize");
  device().wait_until([&] { return emulated::of(*this)->load(); });
}

void wait_for(const stream& on, const event& e) { device().push(emulated::of(on), {[] {}, emulated::of(e)}); }

void call_on_host(const stream& on, std::function<void()> f) { emulated::enqueue(on, std::move(f)); }

buffer allocate(std::size_t bytes) {
  return emulated::count_memory(bytes, [&] { return emulated::allocate_known(bytes, "cudaMalloc"); });
}

buffer allocate_pinned(std::size_t bytes) { return emulated::allocate_known(bytes, "cudaMallocHost"); }

void copy_to_device(const stream& on, void* to, const void* from, std::size_t bytes) {
  emulated::copy(on, to, bytes, from, bytes, bytes, 1);
}
void copy_to_host(const stream& on, void* to, const void* from, std::size_t bytes) {
  emulated::copy(on, to, bytes, from, bytes, bytes, 1);
}
void copy_on_device(const stream& on, void* to, const void* from, std::size_t bytes) {
  emulated::copy(on, to, bytes, from, bytes, bytes, 1);
}

void copy_rows(const stream& on, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               std::size_t bytes, std::size_t rows) {
  if (std::max(to_pitch, from_pitch) > most_pitch || bytes > std::min(to_pitch, from_pitch))
    throw device_error("cudaMemcpy2DAsync: invalid pitch argument");
  emulated::copy(on, to, to_pitch, from, from_pitch, bytes, rows);
}

float milliseconds_between(const event& from, const event& to) {
  return std::chrono::duration<float, std::milli>(emulated::of(to)->at - emulated::of(from)->at).count();
}

void fill_zero(const stream& on, void* at, std::size_t bytes) {
  emulated::enqueue(on, [=] { std::memset(at, 0, bytes); });
}

} // namespace troupe::kernels::cuda
