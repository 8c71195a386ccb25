#include "kernels/cuda/device.hpp"

#include "tests/emulation/cuda/memory.hpp"
#include "tests/emulation/cuda/queues.hpp"
#include "tests/emulation/cuda/watched_memory.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>

namespace troupe::kernels::cuda {

namespace emulated {

namespace {

using clock = std::chrono::steady_clock;

constexpr const char* while_recording = ": operation not permitted when stream is capturing";

/// The last recording of an event: whether and when the stream reached it.
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

/// Work recorded of a stream, and the thread that records.
struct recording {
  std::vector<work> steps;
  std::thread::id by;
  bool broken = false; // by a call that is not permitted while recording
};

/// Devices that the machine shows, the one in use by a thread, and whose memory each can address beside its own.
std::atomic<int> shown = 1;
std::atomic<std::size_t> least_divided = 16;
thread_local int in_use = 0;

struct queue {
  int device = in_use;
  std::deque<step> steps;
  std::optional<recording> recorded;
  clock::time_point timer;
};

/// The device: its streams, its memory, and the thread that runs deferred work.
class machine {
public:
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
    throw_if_failed();
    if (q.recorded) {
      if (s.after) { // permitted only for events of the same recording, which are not emulated
        q.recorded->broken = true;
        throw device_error(std::string("cudaStreamWaitEvent") + while_recording);
      }
      return q.recorded->steps.push_back(std::move(s.run));
    }
    if (!deferring_) {
      std::lock_guard one(running_); // other threads may push at the same time
      lock.unlock();
      return s.run();
    }
    q.steps.push_back(std::move(s));
    last_push_ = clock::now();
    wake_.notify_one();
  }

  void start_recording(queue& q) {
    std::lock_guard lock(mutex_);
    throw_if_failed();
    q.recorded = recording{{}, std::this_thread::get_id()};
  }

  std::vector<work> finish_recording(queue& q) {
    std::lock_guard lock(mutex_);
    auto taken = std::move(q.recorded).value();
    q.recorded.reset();
    if (taken.broken)
      throw device_error("cudaStreamEndCapture: operation failed due to a previous error during capture");
    return std::move(taken.steps);
  }

  void discard_recording(queue& q) {
    std::lock_guard lock(mutex_);
    q.recorded.reset();
  }

  bool is_recorded(const queue& q) {
    std::lock_guard lock(mutex_);
    return q.recorded.has_value();
  }

  /// Breaks the recordings of the calling thread and of `q`; returns whether there are any.
  bool break_recordings(const queue* q = nullptr) {
    std::lock_guard lock(mutex_);
    bool any = false;
    for (auto* one : queues_)
      if (one->recorded && (one == q || one->recorded->by == std::this_thread::get_id()))
        any = one->recorded->broken = true;
    return any;
  }

  /// Waiting and allocating are refused on a thread that is recording, and for a stream that is being recorded.
  void refuse_while_recording(const char* call, const queue* q = nullptr) {
    if (break_recordings(q))
      throw device_error(call + std::string(while_recording));
  }

  template <class Done>
  void wait_until(const Done& done) {
    if (std::this_thread::get_id() == worker_.get_id())
      return; // its own work frees memory
    std::unique_lock lock(mutex_);
    ++waiting_;
    wake_.notify_one();
    idle_.wait(lock, [&] { return done() || failed_; });
    --waiting_;
    throw_if_failed();
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
    throw_if_failed();
  }

  /// Whose memory a piece is.
  void add_piece(const void* at, int of, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    pieces_[static_cast<const char*>(at)] = {of, bytes};
  }
  void remove_piece(const void* at) {
    std::lock_guard lock(mutex_);
    pieces_.erase(static_cast<const char*>(at));
  }
  std::size_t bytes_on(int device) {
    std::lock_guard lock(mutex_);
    std::size_t bytes = 0;
    for (const auto& [at, piece] : pieces_)
      bytes += piece.device == device ? piece.bytes : 0;
    return bytes;
  }

  void map(int device, int other) {
    std::lock_guard lock(mutex_);
    mapped_.insert({device, other});
  }

  /// Refuses what a stream of `device` copies from or to memory that it cannot address, and counts what passes between
  /// devices.
  void check_copy(int device, const void* to, const void* from, std::size_t bytes) {
    std::lock_guard lock(mutex_);
    const int owners[] = {owner_of(from), owner_of(to)};
    for (const int owner : owners)
      if (owner >= 0 && owner != device && !mapped_.contains({device, owner}))
        throw device_error("cudaMemcpyAsync: device " + std::to_string(device) + " cannot address device " +
                           std::to_string(owner));
    if (owners[0] >= 0 && owners[1] >= 0 && owners[0] != owners[1])
      sent_[owners[0]] += bytes;
  }

  std::size_t sent_by(int device) {
    std::lock_guard lock(mutex_);
    return sent_[device];
  }

  watched_memory memory; // and pinned memory
  std::atomic<std::uint64_t> waits{0}, launches{0}, replays{0}, allocations{0};

private:
  void throw_if_failed() const {
    if (failed_)
      throw device_error("cudaLaunchKernel: " + why_, true);
  }

  void work_on() {
    std::unique_lock lock(mutex_);
    queue* favourite = nullptr;
    for (;;) {
      // Run work late, so that a host that forgot to wait overtakes it: once the host waits, or has queued nothing for
      // a while.
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

  /// -1: of none.
  int owner_of(const void* at) const {
    auto found = pieces_.upper_bound(static_cast<const char*>(at));
    if (found == pieces_.begin())
      return -1;
    --found;
    return static_cast<const char*>(at) < found->first + found->second.bytes ? found->second.device : -1;
  }

  struct owned_piece {
    int device = 0;
    std::size_t bytes = 0;
  };
  std::map<const char*, owned_piece> pieces_; // of device memory
  std::set<std::pair<int, int>> mapped_;
  std::map<int, std::size_t> sent_; // bytes, to other devices

  std::mutex mutex_;
  std::recursive_mutex running_;
  std::condition_variable wake_, idle_;
  std::vector<queue*> queues_;
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

buffer allocate_known(std::size_t bytes, const char* call) {
  device().refuse_while_recording(call);
  device().check();
  auto* at = device().memory.allocate(bytes);
  if (at == nullptr)
    throw device_error(std::string(call) + " (" + std::to_string(bytes) + " bytes): out of memory");
  ++device().allocations;
  return {at, [](void* memory) {
            device().break_recordings(); // cudaFree is not permitted then, but the status is not checked
            try {
              device().wait_for_all();      // as cudaFree does
            } catch (const device_error&) { // reported to the next call that uses the device
            }
            device().memory.free(memory);
          }};
}

/// Reads and writes pageable memory as late as pinned memory, so that tests with deferred work notice a caller that did
/// not wait. The run-time library may or may not have read it when it returns.
void copy(const stream& on, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t bytes,
          std::size_t rows) {
  if (bytes == 0)
    return;
  const auto rows_copied = [=](const void* source, std::size_t pitch) {
    for (std::size_t i = 0; i < rows; ++i)
      std::memcpy(static_cast<char*>(to) + i * to_pitch, static_cast<const char*>(source) + i * pitch, bytes);
  };
  device().check_copy(of(on).device, to, from, bytes * rows);
  if (!device().memory.owns(from) && device().is_recorded(of(on)))
    throw device_error("cudaMemcpyAsync: from pageable memory, in a recording that outlives it");
  enqueue(on, [=] { rows_copied(from, from_pitch); });
}

} // namespace

shown_devices::shown_devices(int count) { shown = count; }
shown_devices::~shown_devices() { shown = 1; }

divided_from::divided_from(std::size_t rows) : before_(least_divided.exchange(rows)) {}
divided_from::~divided_from() { least_divided = before_; }

std::size_t bytes_on(int index) { return device().bytes_on(index); }
std::size_t sent_by(int index) { return device().sent_by(index); }

void check_launch(const stream& on) {
  if (of(on).device != in_use)
    throw device_error("cudaLaunchKernel: invalid resource handle: a stream of device " +
                       std::to_string(of(on).device) + " while device " + std::to_string(in_use) + " is in use");
}

void enqueue(const stream& on, work what) { device().push(of(on), {std::move(what), nullptr}); }

void start_recording(const stream& on) { device().start_recording(of(on)); }

std::vector<work> finish_recording(const stream& on) { return device().finish_recording(of(on)); }

void discard_recording(const stream& on) { device().discard_recording(of(on)); }

void check_memory() { device().memory.check_everything(); }

void forget_writes() { device().memory.forget_writes(); }

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

int device_count(std::string*) { return emulated::shown; }

void use_device(int index) {
  if (index < 0 || index >= emulated::shown)
    throw device_error("cudaSetDevice: invalid device ordinal");
  emulated::in_use = index;
}

void map_device(int other) { device().map(emulated::in_use, other); }

device_info select_device(int index) {
  use_device(index);
  return {.name = emulated::device_name,
          .major = 9,
          .minor = 0,
          .multiprocessors = 4,
          .memory = emulated::memory_size,
          .available = emulated::available_memory(),
          .l2_bytes = 4 << 10,
          .overhead = 0,
          .peak_copy_bytes = 64 << 10,
          .peak_product_size = 16,
          .divided_rows = emulated::least_divided};
}

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
  device().memory.check_guards();
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
  if (device().is_recorded(emulated::of(on))) // would fork the recording
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

void wait_for(const stream& on, const event& e) {
  device().push(emulated::of(on), {[] {}, emulated::of(e)});
}

void call_on_host(const stream& on, std::function<void()> f) { emulated::enqueue(on, std::move(f)); }

buffer allocate(std::size_t bytes) {
  return emulated::count_memory(bytes, [&] {
    auto made = emulated::allocate_known(bytes, "cudaMalloc");
    auto* at = made.get();
    device().add_piece(at, emulated::in_use, bytes);
    return buffer(at, [made = std::move(made)](void* memory) { device().remove_piece(memory); });
  });
}

buffer allocate_pinned(std::size_t bytes) { return emulated::allocate_known(bytes, "cudaMallocHost"); }

bool is_recorded(const stream& on) { return device().is_recorded(emulated::of(on)); }

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
