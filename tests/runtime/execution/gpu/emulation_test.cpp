// Operations that a GPU refuses or leaves undefined must be errors in the emulation.
#include "kernels/cuda/device/launch.hpp"
#include "kernels/cuda/graph.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <thread>

using namespace troupe::kernels::cuda;
using troupe::kernels::buffer;
using troupe::kernels::device_error;
namespace emulated = troupe::kernels::cuda::emulated;

namespace {

struct writing_kernel {
  static constexpr const char* name = "writing";
  static constexpr unsigned threads = 32;
  std::uint32_t* to;
  void operator()() const { to[simt::thread()] = simt::thread(); }
};

struct copying_kernel {
  static constexpr const char* name = "copying";
  static constexpr unsigned threads = 32;
  const std::uint32_t* from;
  bool asynchronous;
  void operator()() const {
    if (asynchronous)
      simt::copy_async(simt::shared() + 16 * simt::thread(), from + 4 * simt::thread());
    else
      reinterpret_cast<words4*>(simt::shared())[simt::thread()] = simt::load_streamed(from + 4 * simt::thread());
    simt::wait_for_copies();
  }
};

/// The message of the exception that f throws.
template <class F>
std::string refusal(const F& f) {
  try {
    f();
    return "not refused";
  } catch (const std::exception& e) {
    return e.what();
  }
}

} // namespace

TEST_CASE("the emulated device refuses calls that are not permitted during a recording, and breaks the recording") {
  const stream on, other;
  const auto memory = allocate(256), pinned = allocate_pinned(256);
  buffer freed = allocate(256);
  event before;
  const auto recorded = [&](const auto& f) { return refusal([&] { graph(on, f); }); };
  const std::string not_permitted = ": operation not permitted when stream is capturing";
  CHECK(recorded([&] { allocate(1); }) == "cudaMalloc" + not_permitted);
  CHECK(recorded([&] { allocate_pinned(1); }) == "cudaMallocHost" + not_permitted);
  CHECK(recorded([&] { on.synchronise(); }) == "cudaStreamSynchronize" + not_permitted);
  CHECK(recorded([&] { other.synchronise(); }) == "cudaStreamSynchronize" + not_permitted);
  CHECK(recorded([&] { before.synchronise(); }) == "cudaEventSynchronize" + not_permitted);
  CHECK(recorded([&] { wait_for(on, before); }) == "cudaStreamWaitEvent" + not_permitted);
  CHECK(recorded([&] { before.record(on); }).starts_with("cudaEventRecord"));
  const int value = 7;
  CHECK(recorded([&] { copy_to_device(on, memory.get(), &value, sizeof value); }).find("pageable") !=
        std::string::npos);
  const std::string spoilt = "cudaStreamEndCapture: operation failed due to a previous error during capture";
  CHECK(recorded([&] { freed.reset(); }) == spoilt);
  CHECK(recorded([&] { CHECK(refusal([] { allocate(1); }) != "not refused"); }) == spoilt);
  CHECK(recorded([&] { copy_to_device(on, memory.get(), pinned.get(), 256); }) == "not refused");
  on.synchronise(); // no recording is left open
}

TEST_CASE("while a thread records, others may allocate and wait for their own streams, but not for the recorded one") {
  const stream on, other;
  std::string allocating, waiting, of_recorded;
  graph(on, [&] {
    std::thread([&] {
      allocating = refusal([] { allocate(64); });
      waiting = refusal([&] { other.synchronise(); });
    }).join();
  });
  CHECK(allocating == "not refused");
  CHECK(waiting == "not refused");
  const auto recorded = refusal(
    [&] { graph(on, [&] { std::thread([&] { of_recorded = refusal([&] { on.synchronise(); }); }).join(); }); });
  CHECK(of_recorded.starts_with("cudaStreamSynchronize"));
  CHECK(recorded.starts_with("cudaStreamEndCapture"));
}

TEST_CASE("the emulated device refuses launches and copies that some GPU refuses") {
  const stream on;
  const auto memory = allocate(256);
  const writing_kernel kernel{static_cast<std::uint32_t*>(memory.get())};
  CHECK(refusal([&] { launch(on, {1, 65535}, 99 << 10, kernel); }) == "not refused");
  CHECK(refusal([&] { launch(on, {1, 65536}, 0, kernel); }).starts_with("launch (writing): invalid configuration"));
  CHECK(refusal([&] { launch(on, {1u << 31}, 0, kernel); }).starts_with("launch (writing): invalid configuration"));
  CHECK(
    refusal([&] { launch(on, {1}, (99 << 10) + 1, kernel); }).starts_with("launch (writing): invalid configuration"));
  CHECK(refusal([&] { copy_rows(on, memory.get(), 16, memory.get(), most_pitch, 16, 1); }) == "not refused");
  CHECK(refusal([&] { copy_rows(on, memory.get(), 16, memory.get(), most_pitch + 1, 16, 1); }) ==
        "cudaMemcpy2DAsync: invalid pitch argument");
  CHECK(refusal([&] { copy_rows(on, memory.get(), 16, memory.get(), 8, 16, 1); }) ==
        "cudaMemcpy2DAsync: invalid pitch argument");
}

TEST_CASE("wide loads and asynchronous copies must be aligned to 16 bytes") {
  const stream on;
  const auto memory = allocate(1024);
  const auto* words = static_cast<const std::uint32_t*>(memory.get());
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    CHECK(refusal([&] { launch(on, {1}, 512, copying_kernel{words + 4, asynchronous}); }) == "not refused");
    CHECK(refusal([&] {
            launch(on, {1}, 512, copying_kernel{words + 2, asynchronous});
          }) == "an address that is not a multiple of 16");
  }
}

TEST_CASE("writes beyond a piece of device memory, or after it was freed, are detected") {
  const stream on;
  const auto memory = allocate(128);
  auto* words = static_cast<std::uint32_t*>(memory.get());
  launch(on, {1}, 0, writing_kernel{words});
  on.synchronise();
  launch(on, {1}, 0, writing_kernel{words + 1});
  CHECK(refusal([&] { on.synchronise(); }) == "something was written beyond the 128 bytes of a piece of device memory");
  words[32] = ~0u; // repair the guard
  emulated::forget_writes();

  buffer gone = allocate(128);
  auto* freed = static_cast<std::uint32_t*>(gone.get());
  gone.reset();
  launch(on, {1}, 0, writing_kernel{freed});
  CHECK(refusal(emulated::check_memory) == "something was written to 128 bytes of device memory that had been freed");
  std::memset(freed, 0xff, 128);
  emulated::forget_writes();
  emulated::check_memory();
}
