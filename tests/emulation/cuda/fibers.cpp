#include "tests/emulation/cuda/fibers.hpp"

#include <bit>
#include <csetjmp>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace troupe::kernels::cuda::emulated {

namespace {

constexpr std::size_t stack_bytes = 64 << 10;
constexpr unsigned lanes = 32;
constexpr std::size_t copy_bytes = 16;

/// A suspended stack. It is entered as a ucontext the first time and by longjmp afterwards, which needs no system
/// call; under AddressSanitizer, which intercepts longjmp, always as a ucontext.
struct stack_context {
  ucontext_t context;
  std::jmp_buf jump;
  bool entered = false;
};

struct fiber : stack_context {
  std::unique_ptr<char[]> stack;
  bool done = false;
  const unsigned* watched = nullptr; // waits while this is `value`
  unsigned value = 0;
  std::vector<std::pair<void*, const void*>> copies; // in flight
};

struct warp_state {
  unsigned arrived = 0;
  unsigned generation = 0;
  alignas(16) unsigned char shown[2][lanes * 32];
};

/// Thrown to end the other threads of a block in which one has thrown.
struct abandoned {};

class block_runner {
public:
  void run(unsigned threads, std::size_t shared_bytes, const std::function<void()>& body, bool descending) {
    if (threads == 0 || threads % lanes != 0 || threads > 1024)
      throw std::invalid_argument("a block has 32 to 1024 threads, in whole warps");
    while (fibers_.size() < threads)
      fibers_.push_back(make_fiber());
    count_ = threads;
    body_ = &body;
    finished_ = arrived_ = 0;
    error_ = nullptr;
    step_ = descending ? threads - 1 : 1;
    copies_at_once_ = descending;
    warps_.assign(threads / lanes, warp_state{});
    shared_.assign((shared_bytes + 15) / 16 + 1, {~0ull, ~0ull});
    for (unsigned i = 0; i < threads; ++i) {
      fibers_[i]->done = false;
      fibers_[i]->watched = nullptr;
      fibers_[i]->copies.clear();
    }
    current_ = descending ? threads - 1 : 0;
    switch_from(main_, *fibers_[current_]);
    if (error_)
      std::rethrow_exception(error_);
  }

  void sync() {
    const unsigned generation = generation_;
    if (++arrived_ == count_) {
      arrived_ = 0;
      ++generation_;
      return;
    }
    wait(generation_, generation, "a thread ended while others wait at a barrier");
  }

  const unsigned char* show(const void* mine, std::size_t bytes) {
    auto& warp = warps_[current_ / lanes];
    const unsigned generation = warp.generation;
    unsigned char* shown = warp.shown[generation % 2];
    std::memcpy(shown + current_ % lanes * 32, mine, bytes);
    if (++warp.arrived == lanes) {
      warp.arrived = 0;
      ++warp.generation;
    } else {
      wait(warp.generation, generation, "not all lanes reach a warp operation");
    }
    return shown;
  }

  void copy(void* to, const void* from) {
    expect_aligned(to, copy_bytes);
    expect_aligned(from, copy_bytes);
    if (copies_at_once_)
      std::memcpy(to, from, copy_bytes);
    fibers_[current_]->copies.emplace_back(to, from);
  }

  void wait_for_copies() {
    for (const auto& [to, from] : fibers_[current_]->copies)
      if (!copies_at_once_)
        std::memcpy(to, from, copy_bytes);
    fibers_[current_]->copies.clear();
  }

  unsigned current() const { return current_; }
  unsigned count() const { return count_; }
  unsigned char* shared() { return reinterpret_cast<unsigned char*>(shared_.data()); }

  /// Runs one thread per block, again and again.
  void fiber_main() {
    finish_switch(nullptr);
    for (;;) {
      try {
        (*body_)();
        if (!fibers_[current_]->copies.empty())
          throw std::logic_error("a thread ended while its copies were under way");
      } catch (const abandoned&) {
      } catch (...) {
        if (!error_)
          error_ = std::current_exception();
      }
      fiber& self = *fibers_[current_];
      self.done = true;
      if (++finished_ == count_) {
        switch_from(self, main_);
      } else {
        current_ = next_fiber("a thread ended while others wait for it");
        switch_from(self, *fibers_[current_]);
      }
    }
  }

private:
  struct alignas(16) two_words {
    std::uint64_t a, b;
  };

  static std::unique_ptr<fiber> make_fiber() {
    auto f = std::make_unique<fiber>();
    f->stack = std::make_unique_for_overwrite<char[]>(stack_bytes);
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack.get();
    f->context.uc_stack.ss_size = stack_bytes;
    f->context.uc_link = nullptr;
    makecontext(&f->context, enter, 0);
    return f;
  }

  static void enter();

  bool runnable(const fiber& f) const { return !f.done && (error_ || f.watched == nullptr || *f.watched != f.value); }

  /// The next fiber that can run, possibly the caller. If none can, sets an error, which makes all runnable.
  unsigned next_fiber(const char* otherwise) {
    for (;;) {
      unsigned next = current_;
      for (unsigned i = 0; i < count_; ++i) {
        next = (next + step_) % count_;
        if (runnable(*fibers_[next]))
          return next;
      }
      error_ = std::make_exception_ptr(std::logic_error(otherwise));
    }
  }

  /// Runs other fibers while `counter` is `value`.
  void wait(const unsigned& counter, unsigned value, const char* otherwise) {
    if (error_)
      throw abandoned{};
    const unsigned self = current_;
    fibers_[self]->watched = &counter;
    fibers_[self]->value = value;
    current_ = next_fiber(otherwise);
    if (current_ != self)
      switch_from(*fibers_[self], *fibers_[current_]);
    fibers_[self]->watched = nullptr;
    if (error_)
      throw abandoned{};
  }

#if defined(__SANITIZE_ADDRESS__)
  // ASan must be told about stack switches.
  void switch_from(stack_context& from, stack_context& to) {
    void* fake = nullptr;
    if (&to == &main_)
      __sanitizer_start_switch_fiber(&fake, main_stack_, main_stack_bytes_);
    else
      __sanitizer_start_switch_fiber(&fake, static_cast<fiber&>(to).stack.get(), stack_bytes);
    swapcontext(&from.context, &to.context);
    finish_switch(fake);
  }
#else
  void switch_from(stack_context& from, stack_context& to) {
    from.entered = true;
    if (_setjmp(from.jump) != 0)
      return;
    if (std::exchange(to.entered, true))
      _longjmp(to.jump, 1);
    setcontext(&to.context);
  }
#endif

  void finish_switch([[maybe_unused]] void* fake) {
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom = nullptr;
    std::size_t size = 0;
    __sanitizer_finish_switch_fiber(fake, &bottom, &size);
    if (main_stack_ == nullptr) {
      main_stack_ = bottom;
      main_stack_bytes_ = size;
    }
#endif
  }

  stack_context main_{};
  std::vector<std::unique_ptr<fiber>> fibers_;
  std::vector<warp_state> warps_;
  std::vector<two_words> shared_;
  const std::function<void()>* body_ = nullptr;
  bool copies_at_once_ = false;
  std::exception_ptr error_;
  unsigned count_ = 0, current_ = 0, step_ = 1, finished_ = 0, arrived_ = 0, generation_ = 0;
  const void* main_stack_ = nullptr;
  std::size_t main_stack_bytes_ = 0;
};

thread_local struct { unsigned x, y; } block_index;

thread_local unsigned grid_width = 0;
thread_local std::size_t copied = 0;

block_runner& runner() {
  thread_local block_runner instance;
  return instance;
}

void block_runner::enter() { runner().fiber_main(); }

float half_of(std::uint32_t pair, unsigned index) {
  return std::bit_cast<float>(index == 0 ? pair << 16 : pair & 0xffff0000u);
}

} // namespace

void run_grid(unsigned x, unsigned y, unsigned threads, std::size_t shared_bytes, const std::function<void()>& body) {
  thread_local bool descending = false;
  descending = !descending;
  grid_width = x;
  for (block_index.y = 0; block_index.y < y; ++block_index.y)
    for (block_index.x = 0; block_index.x < x; ++block_index.x)
      runner().run(threads, shared_bytes, body, descending);
}

void expect_aligned(const void* at, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(at) % bytes != 0)
    throw std::logic_error("an address that is not a multiple of " + std::to_string(bytes));
}

unsigned thread() { return runner().current(); }
unsigned threads() { return runner().count(); }
unsigned block_x() { return block_index.x; }
unsigned block_y() { return block_index.y; }
unsigned grid_x() { return grid_width; }
unsigned char* shared() { return runner().shared(); }
void sync_block() { runner().sync(); }
void copy_async(void* to, const void* from) {
  copied += copy_bytes;
  runner().copy(to, from);
}
std::size_t copied_bytes() { return copied; }
void wait_for_copies() { runner().wait_for_copies(); }
const unsigned char* show_warp(const void* mine, std::size_t bytes) { return runner().show(mine, bytes); }

void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  const std::uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  const unsigned char* shown = show_warp(mine, sizeof mine);
  const auto word = [&](unsigned lane, unsigned index) {
    std::uint32_t value;
    std::memcpy(&value, shown + 32 * lane + 4 * index, 4);
    return value;
  };
  const unsigned g = thread() % lanes / 4, t = thread() % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned upper = i / 2, column = 2 * t + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned owner = k % 8 / 2;
      d[i] += half_of(word(4 * g + owner, k / 8 * 2 + upper), k % 2) *
        half_of(word(4 * column + owner, 4 + k / 8), k % 2);
    }
  }
}

} // namespace troupe::kernels::cuda::emulated
