#include "kernels/cuda/device.hpp"

#include "kernels/cuda/native/overlap.hpp"
#include "kernels/cuda/native/status.hpp"

#include <cstdlib>

namespace troupe::kernels::cuda {

namespace {

constexpr int first_with_overlap = 9;                          // major compute capability
constexpr std::size_t overhead_bytes = std::size_t(768) << 20; // not yet measured on a GPU
constexpr std::size_t peak_copy_bytes = std::size_t(2) << 30, peak_product_size = 8192;

cudaStream_t handle(const stream& s) { return static_cast<cudaStream_t>(s.native()); }

} // namespace

bool native::overlaps_launches() {
  thread_local const bool overlaps = [] { // devices of a thread are alike
    int device = 0, major = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    return major >= first_with_overlap && std::getenv("TROUPE_CUDA_SERIAL") == nullptr;
  }();
  return overlaps;
}

int device_count(std::string* why_none) {
  int count = 0;
  const auto status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0)
    return count;
  if (why_none != nullptr) {
    int driver = 0; // stays 0 without a driver, for which the status would report an insufficient version
    cudaDriverGetVersion(&driver);
    const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
    if (driver == 0)
      *why_none = "no NVIDIA driver was found";
    else if (status == cudaErrorInsufficientDriver)
      *why_none = "the NVIDIA driver is for CUDA " + version(driver) + ", this program needs one for CUDA " +
        version(CUDART_VERSION) + " or later";
    else if (status == cudaSuccess || status == cudaErrorNoDevice)
      *why_none = "the NVIDIA driver knows no GPU";
    else
      *why_none = std::string("the NVIDIA driver says: ") + cudaGetErrorString(status);
  }
  cudaGetLastError(); // has been reported
  return 0;
}

device_info select_device(int index) {
  check(cudaSetDevice(index), "cudaSetDevice");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  device_info info;
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  info.overhead = overhead_bytes;
  info.peak_copy_bytes = peak_copy_bytes;
  info.peak_product_size = peak_product_size;
  info.divided_rows = 256;
  check(cudaMemGetInfo(&info.available, &info.memory), "cudaMemGetInfo");
  return info;
}

void use_device(int index) { check(cudaSetDevice(index), "cudaSetDevice"); }

void map_device(int other) {
  int device = 0, possible = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceCanAccessPeer(&possible, device, other), "cudaDeviceCanAccessPeer");
  if (possible == 0)
    throw device_error("cuda:" + std::to_string(device) + " cannot address the memory of cuda:" +
                       std::to_string(other) + ", which GPUs that share a model must");
  const auto status = cudaDeviceEnablePeerAccess(other, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError(); // has been seen
  else
    check(status, "cudaDeviceEnablePeerAccess");
}

stream::stream() {
  cudaStream_t made = nullptr;
  check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  native_ = made;
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  begin_ = begin;
  check(cudaEventCreate(&end), "cudaEventCreate");
  end_ = end;
}

stream::~stream() { // ignores errors, which earlier calls have reported
  if (end_)
    cudaEventDestroy(static_cast<cudaEvent_t>(end_));
  if (begin_)
    cudaEventDestroy(static_cast<cudaEvent_t>(begin_));
  if (native_)
    cudaStreamDestroy(handle(*this));
}

void stream::synchronise() const { check(cudaStreamSynchronize(handle(*this)), "cudaStreamSynchronize"); }

void stream::start_timer() {
  check(cudaEventRecord(static_cast<cudaEvent_t>(begin_), handle(*this)), "cudaEventRecord");
}

float stream::stop_timer() {
  check(cudaEventRecord(static_cast<cudaEvent_t>(end_), handle(*this)), "cudaEventRecord");
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(end_)), "cudaEventSynchronize");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin_), static_cast<cudaEvent_t>(end_)),
        "cudaEventElapsedTime");
  return milliseconds;
}

event::event(bool timed) {
  cudaEvent_t made = nullptr;
  check(cudaEventCreateWithFlags(&made, timed ? cudaEventDefault : cudaEventDisableTiming), "cudaEventCreateWithFlags");
  native_ = made;
}

event::~event() {
  if (native_)
    cudaEventDestroy(static_cast<cudaEvent_t>(native_));
}

void event::record(const stream& on) {
  check(cudaEventRecord(static_cast<cudaEvent_t>(native_), handle(on)), "cudaEventRecord");
}

bool event::happened() const {
  const auto status = cudaEventQuery(static_cast<cudaEvent_t>(native_));
  if (status == cudaErrorNotReady)
    return false;
  check(status, "cudaEventQuery");
  return true;
}

void event::synchronise() const {
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(native_)), "cudaEventSynchronize");
}

float milliseconds_between(const event& from, const event& to) {
  float milliseconds = 0;
  check(
    cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(from.native()), static_cast<cudaEvent_t>(to.native())),
    "cudaEventElapsedTime");
  return milliseconds;
}

void wait_for(const stream& on, const event& e) {
  check(cudaStreamWaitEvent(handle(on), static_cast<cudaEvent_t>(e.native()), 0), "cudaStreamWaitEvent");
}

void call_on_host(const stream& on, std::function<void()> f) {
  auto call = std::make_unique<std::function<void()>>(std::move(f));
  const auto run = [](void* data) {
    const std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(data));
    (*mine)();
  };
  check(cudaLaunchHostFunc(handle(on), run, call.get()), "cudaLaunchHostFunc");
  call.release(); // owned by the driver; leaks if the device fails first
}

buffer allocate(std::size_t bytes) {
  void* memory = nullptr;
  const auto size = std::to_string(bytes) + " bytes";
  check(cudaMalloc(&memory, bytes == 0 ? 1 : bytes), "cudaMalloc", size.c_str());
  buffer owner(memory, [](void* p) { cudaFree(p); });
  const stream clearing; // its own, because waiting for another stream is refused while that is being recorded
  fill_zero(clearing, memory, bytes);
  clearing.synchronise();
  return owner;
}

buffer allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, bytes == 0 ? 1 : bytes), "cudaMallocHost", (std::to_string(bytes) + " bytes").c_str());
  return {memory, [](void* p) { cudaFreeHost(p); }};
}

bool is_recorded(const stream& on) {
  auto status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(handle(on), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void copy_to_device(const stream& on, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, handle(on)), "cudaMemcpyAsync", "to device");
}

void copy_to_host(const stream& on, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, handle(on)), "cudaMemcpyAsync", "to host");
}

void copy_on_device(const stream& on, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, handle(on)), "cudaMemcpyAsync", "on device");
}

void copy_rows(const stream& on, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
               std::size_t bytes, std::size_t rows) {
  check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, bytes, rows, cudaMemcpyDefault, handle(on)),
        "cudaMemcpy2DAsync");
}

void fill_zero(const stream& on, void* at, std::size_t bytes) {
  check(cudaMemsetAsync(at, 0, bytes, handle(on)), "cudaMemsetAsync");
}

} // namespace troupe::kernels::cuda
