#include "runtime/execution/device.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/support/error.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <thread>

using namespace troupe;

namespace {

std::string device_refusal(const std::string& name, const gpu_opener& open_gpu = nullptr) {
  try {
    open_device({.device = name, .threads = 1}, open_gpu);
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::bad_request);
    CHECK(f.what_failed().param == "device");
    return f.what_failed().message;
  }
  return "none";
}

} // namespace

TEST_CASE("A device is chosen by name; auto is a CPU if there is no GPU") {
  CHECK(open_device({.device = "auto", .threads = 1}, nullptr)->description().starts_with("cpu, "));
  CHECK(open_device({.device = "cpu:portable", .threads = 2}, nullptr)->description() == "cpu, portable, 2 threads");
  const auto none = [](const gpu_options&) -> std::shared_ptr<const device> {
    throw failure(errc::bad_request, "no NVIDIA GPU", "device");
  };
  std::string why = "?";
  CHECK(open_device({.device = "auto", .threads = 1}, none, &why)->capabilities().schedule_invariant);
  CHECK(why.empty()); // none was asked for
  const auto broken = [](const gpu_options&) -> std::shared_ptr<const device> {
    throw kernels::device_error("cudaSetDevice: out of memory");
  };
  CHECK(open_device({.device = "auto", .threads = 1}, broken, &why)->description().starts_with("cpu, "));
  CHECK(why == "the first GPU does not work: cudaSetDevice: out of memory");
  CHECK_THROWS_AS(open_device({.device = "cuda:0"}, broken), kernels::device_error);
  open_device({.device = "auto", .threads = 1}, nullptr, &why);
  CHECK(why.empty());
  CHECK(device_refusal("cuda:0", none) == "no NVIDIA GPU");
  CHECK(device_refusal("cuda:0") == "there is no device `cuda:0`: this program was built without CUDA");
}

TEST_CASE("The threads of a CPU are divided among ranks, as many for each; GPUs are ranks themselves") {
  const auto ranks = [](int threads, int ranks) {
    return open_device({.device = "cpu:portable", .threads = threads, .tensor_parallel = ranks}, nullptr);
  };
  CHECK(ranks(4, 1)->description() == "cpu, portable, 4 threads");
  CHECK(ranks(2, 2)->description() == "cpu, portable, 2 ranks of 1 thread");
  CHECK(ranks(4, 2)->description() == "cpu, portable, 2 ranks of 2 threads");
  CHECK(ranks(5, 2)->description() == "cpu, portable, 2 ranks of 2 or 3 threads");
  CHECK(ranks(3, 3)->open()->description() == "cpu, portable, 3 ranks of 1 thread");
  const auto refused = [](const compute_options& options, const gpu_opener& open_gpu = nullptr,
                          const std::string& for_what = "tensor_parallel") {
    try {
      open_device(options, open_gpu);
    } catch (const failure& f) {
      CHECK(f.what_failed().param == for_what);
      return f.what_failed().message;
    }
    return std::string("nothing");
  };
  CHECK(refused({.device = "cpu", .threads = 2, .tensor_parallel = 3}, nullptr, "threads") ==
        "`threads` must be at least 3, one for each part of the model that computes by itself, not 2");
  const auto many = refused({.device = "cpu", .tensor_parallel = 100'000});
  CHECK(many.starts_with("`tensor_parallel` is 100000, but only "));
  CHECK(many.ends_with("can compute at once here; set `threads`, too, to run more of them in turns"));
  CHECK(refused({.device = "cpu", .threads = 2, .tensor_parallel = -1}) ==
        "`tensor_parallel` must be at least 1, not -1");
  int asked = 0;
  const gpu_opener too_few = [&](const gpu_options& options) -> std::shared_ptr<const device> {
    asked = options.ranks;
    throw failure(errc::bad_request, "there are too few GPUs", "tensor_parallel");
  };
  for (const char* gpu : {"auto", "cuda:0"}) {
    CHECK(refused({.device = gpu, .threads = 2, .tensor_parallel = 2}, too_few) == "there are too few GPUs");
    CHECK(asked == 2);
  }
}

TEST_CASE("A GPU is opened by its number, with the options given") {
  gpu_options asked;
  int opened = 0;
  const auto some = [&](const gpu_options& options) {
    asked = options;
    ++opened;
    return open_device({.device = "cpu", .threads = 1}, nullptr); // stands for it
  };
  open_device({.device = "cuda:12", .deterministic = true, .graphs = false}, some);
  CHECK(asked.index == 12);
  CHECK(asked.deterministic);
  CHECK_FALSE(asked.graphs);
  CHECK_FALSE(asked.unified_maximum.has_value());
  open_device({.device = "auto", .unified_maximum = 2.5f}, some);
  CHECK(asked.unified_maximum == 2.5f);
  CHECK(asked.index == 0);
  CHECK(opened == 2);
  for (const std::string name : {"cuda", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "gpu", "cpu:", ""}) {
    const auto why = device_refusal(name, some);
    CHECK(why.starts_with("there is no device `" + name + "` here; there are auto, cpu, cpu:"));
    CHECK(why.ends_with("and cuda:N for NVIDIA GPU N"));
  }
  CHECK(opened == 2);
}

TEST_CASE("Options for GPUs are refused on a CPU") {
  try {
    open_device({.device = "cpu", .unified_maximum = 1.f}, nullptr);
    FAIL("accepted");
  } catch (const failure& f) {
    CHECK(f.what_failed().message == "`unified_maximum` is for NVIDIA GPUs");
  }
}

TEST_CASE("Options for CPUs are refused on a GPU") {
  int opened = 0;
  const auto some = [&](const gpu_options&) {
    ++opened;
    return open_device({.device = "cpu", .threads = 1}, nullptr); // stands for it
  };
  for (const std::string name : {"cuda:0", "auto"})
    try {
      open_device({.device = name, .packed_cache = "cache"}, some);
      FAIL("accepted");
    } catch (const failure& f) {
      CHECK(f.what_failed().message == "`packed_cache` is for CPUs");
    }
  CHECK(opened == 1);
  CHECK_NOTHROW(open_device({.device = "auto", .threads = 1, .packed_cache = "cache"}, nullptr));
}

TEST_CASE("Types to compute in are chosen by name") {
  const auto source = open_model(test_data() + "/golden/llama-gqa");
  const auto& tensors = *source.tensors;
  const auto on_cpu = [&](const compute_options& names) { return precision_of(names, tensors, {}); };
  const auto sentence = [&](const compute_options& names) {
    try {
      on_cpu(names);
    } catch (const failure& f) {
      return f.what_failed().message;
    }
    return std::string("none");
  };
  CHECK(on_cpu({.quantize = "fp8"}).weights == kernels::quantization::fp8);
  const auto precision = on_cpu({.quantize = "fp8", .kv_dtype = "fp8"});
  CHECK(precision.kv == kernels::kv_type::fp8);
  CHECK(precision.weights == kernels::quantization::fp8);
  CHECK(precision.compute == kernels::dtype::bf16);
  CHECK(on_cpu({.dtype = "f32", .kv_dtype = "int8"}).kv == kernels::kv_type::int8);
  const auto halves = open_model(test_data() + "/golden/llama-mqa-rope3"); // in f16
  CHECK(on_cpu({}).compute == kernels::dtype::f32);
  CHECK(precision_of({}, *halves.tensors, {}).compute == kernels::dtype::f32);
  CHECK(precision_of({}, *halves.tensors, {.f16_as_bf16 = true}).compute == kernels::dtype::bf16);
  CHECK(precision_of({}, *halves.tensors, {.f16_as_bf16 = true}).kv == kernels::kv_type::bf16);
  CHECK(precision_of({.dtype = "f32"}, *halves.tensors, {.f16_as_bf16 = true}).compute == kernels::dtype::f32);
  const auto narrow = precision_of({.quantize = "bf16"}, *halves.tensors, {});
  CHECK(narrow.weights == kernels::quantization::bf16);
  CHECK(narrow.compute == kernels::dtype::bf16);
  CHECK(narrow.kv == kernels::kv_type::bf16);
  CHECK(sentence({.kv_dtype = "fp9"}) == "`kv_dtype` must be auto, f32, bf16, int8 or fp8, not `fp9`");
  CHECK(sentence({.quantize = "int3"}) == "`quantize` must be none, int8, int4, fp8 or bf16, not `int3`");
}

TEST_CASE("A CPU is schedule-invariant, and has neither memory nor threads nor clocks of its own") {
  const auto c = open_device({.device = "cpu", .threads = 1}, nullptr)->capabilities();
  CHECK(c.schedule_invariant);
  CHECK_FALSE(c.own_memory);
  CHECK_FALSE(c.own_thread);
  CHECK_FALSE(c.step_times);
}

TEST_CASE("The memory of a model on a device is that of its decoder and the logits of a step") {
  const auto source = open_model(test_data() + "/golden/llama-gqa");
  const auto device = open_device({.device = "cpu", .threads = 1}, nullptr);
  const auto backend = device->open();
  const auto& config = source.config;
  for (const int rows : {2, 8}) { // fewer and more than sequences
    const auto decoder = estimate_memory(*source.tensors, config, kernels::dtype::f32, *backend,
                                         {std::max(rows, 3), 3, 64});
    const auto whole = estimate_memory(*source.tensors, config, kernels::dtype::f32, *device, *backend, {rows, 3, 64});
    CHECK(whole.weights == decoder.weights);
    CHECK(whole.activations == decoder.activations);
    CHECK(whole.scratch - decoder.scratch ==
          (3 + extra_logit_rows) * static_cast<std::size_t>(config.vocab) * sizeof(float));
    CHECK(whole.kv_block == decoder.kv_block);
    CHECK(whole.fixed() == whole.weights + whole.activations + whole.scratch);
  }
}

TEST_CASE("backends of one thread share their compute threads; those of another thread have their own") {
  const auto threads = [] {
    const std::filesystem::directory_iterator all("/proc/self/task");
    return std::distance(begin(all), end(all));
  };
  const auto device = open_device({.device = "cpu", .threads = 3}, nullptr);
  const auto before = threads();
  auto one = device->open(), other = device->open();
  CHECK(threads() == before + 2);
  CHECK(&one->storable()->pool() == &other->storable()->pool());
  const kernels::thread_pool* elsewhere = nullptr;
  std::thread([&] { elsewhere = &device->open()->storable()->pool(); }).join();
  CHECK(elsewhere != &one->storable()->pool());
  one.reset();
  CHECK(threads() == before + 2);
  other.reset();
  CHECK(threads() == before);
}
