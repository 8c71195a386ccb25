// Loads with a packed cache give the same weights as loads without, on every target and for every format.
#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/support/files/mapped_file.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <algorithm>
#include <cstring>

using namespace troupe;
using namespace troupe::test;
using kernels::dtype;
using kernels::quantization;

namespace {

namespace fs = std::filesystem;

/// Records which matrices are read.
class watched_checkpoint final : public checkpoint {
public:
  explicit watched_checkpoint(std::unique_ptr<const checkpoint> inner) : inner_(std::move(inner)) {}
  std::string name() const override { return inner_->name(); }
  std::vector<std::string> tensors() const override { return inner_->tensors(); }
  const tensor_info* find(std::string_view tensor) const override { return inner_->find(tensor); }
  std::string where(std::string_view tensor) const override { return inner_->where(tensor); }
  tensor_data read(std::string_view tensor) const override {
    if (find(tensor)->shape.size() > 1)
      matrices_read.emplace_back(tensor);
    return inner_->read(tensor);
  }

  mutable std::vector<std::string> matrices_read;

private:
  std::unique_ptr<const checkpoint> inner_;
};

std::vector<std::byte> all_bytes(const model_weights& weights, const kernels::backend& backend) {
  std::vector<std::byte> all;
  const auto add = [&](const kernels::matrix& m) {
    for (const auto& part : backend.storable()->bytes_of(m))
      all.insert(all.end(), part.begin(), part.end());
  };
  for (const auto& layer : weights.layers)
    for (const auto* m : {layer.qkv.get(), layer.o.get(), layer.mlp.gate_up.get(), layer.mlp.down.get()})
      add(*m);
  add(*weights.head);
  const auto* vector = static_cast<const std::byte*>(weights.final_norm.weight.get());
  all.insert(all.end(), vector, vector + static_cast<std::size_t>(weights.config.hidden) * sizeof(float));
  return all;
}

compute_options with_cache(const fs::path& folder) {
  compute_options options;
  options.packed_cache = folder.string();
  options.packed_cache_bytes = std::size_t(1) << 40;
  return options;
}

struct loaded {
  std::shared_ptr<const model_weights> weights;
  std::vector<std::byte> bytes;
  std::vector<std::string> matrices_read, lines;
  std::size_t done = 0, total = 0;
};

loaded load(const fs::path& model, const fs::path& cache, precision precision,
            kernels::isa target = kernels::available_isas().back()) {
  auto source = open_model(model.string());
  const auto* watched = new watched_checkpoint(std::move(source.tensors));
  source.tensors.reset(watched);
  const auto backend = kernels::make_cpu_backend({.threads = 2, .target = target});
  loaded result;
  const auto progress = [&](std::size_t done, std::size_t total) {
    CHECK(done > result.done);
    result.done = done;
    result.total = total;
  };
  const auto say = [&](std::string line) {
    if (line.find("packed weights") != line.npos || line.find("packed again") != line.npos)
      result.lines.push_back(std::move(line));
  };
  result.weights = load_weights(source, with_cache(cache), precision, *backend, progress, say);
  CHECK(result.done == result.total);
  CHECK(result.weights->bytes ==
        estimate_memory(*source.tensors, source.config, precision, *backend, {8, 1, 64}).weights);
  result.bytes = all_bytes(*result.weights, *backend);
  result.matrices_read = watched->matrices_read;
  return result;
}

fs::path copy_of(const fs::path& model, const temp_folder& folder) {
  const auto to = folder.path() / model.filename();
  fs::copy(model, to, fs::copy_options::recursive);
  return to;
}

} // namespace

TEST_CASE("Weights have the same bits packed, kept and loaded from a packed cache, for every format and target") {
  std::vector<fs::path> models{
    data() / "golden/llama-gqa",       data() / "golden/llama-mha-tied", data() / "golden/qwen2",
    data() / "golden/qwen3",           data() / "tiny/llama-linear",     data() / "tiny/llama-bias",
    data() / "quantised/gptq-g128-v2", data() / "quantised/awq-g32",     data() / "gguf/llama3-q8_0.gguf",
    data() / "gguf/mixed.gguf",        data() / "gguf/qwen2-bf16.gguf"};
  for (const auto target : kernels::available_isas())
    for (const auto& model : models)
      for (const troupe::precision& precision :
           {precision{dtype::f32}, precision{dtype::bf16}, precision{dtype::bf16, quantization::int8},
            precision{dtype::f32, quantization::int4}, precision{dtype::bf16, quantization::fp8}}) {
        if (precision.weights == quantization::fp8 && target != kernels::available_isas().back())
          continue;
        CAPTURE(std::string(kernels::to_string(target)));
        CAPTURE(model.string());
        const temp_folder folder;
        const auto absent = load(model, "", precision, target);
        CHECK(absent.lines.empty());
        const auto cold = load(model, folder.path(), precision, target);
        const auto warm = load(model, folder.path(), precision, target);
        CHECK(cold.lines.size() == 2);
        CHECK(warm.lines.size() == 1);
        CHECK(cold.matrices_read == absent.matrices_read);
        // The embedding table is read as stored, unless it is the head's matrix, too.
        CHECK(warm.matrices_read.size() == (warm.weights->head_gives_embedding ? 0 : 1));
        CHECK(cold.bytes == absent.bytes);
        CHECK(warm.bytes == absent.bytes);
        CHECK(absent.bytes.size() > 5000);
      }
}

TEST_CASE(
  "A model is packed again when one of its files has changed, even where size and time of change are as before") {
  const temp_folder folder;
  const auto model = copy_of(data() / "tiny/llama-linear", folder), cache = folder.path() / "cache";
  const auto first = load(model, cache, dtype::f32);
  CHECK(load(model, cache, dtype::f32).matrices_read.empty());
  const auto shard = model / "model-00003-of-00003.safetensors";
  const auto time = fs::last_write_time(shard);
  auto bytes = content(shard);
  bytes[bytes.size() - 1] ^= 1; // of the last tensor
  write(shard, bytes);
  fs::last_write_time(shard, time);
  const auto changed = load(model, cache, dtype::f32);
  REQUIRE(changed.lines.size() == 3);
  CHECK(changed.lines[0].ends_with("was made of the model's files before they changed; weights are packed again"));
  CHECK(changed.bytes == load(model, "", dtype::f32).bytes);
  CHECK(load(model, cache, dtype::f32).matrices_read.empty());
  const auto config = model / "config.json";
  write(config, content(config) + " ");
  CHECK(load(model, cache, dtype::f32).matrices_read.size() > 1);
  CHECK(load(model, cache, dtype::f32).matrices_read.empty());
}

TEST_CASE("Packed weights are found through any path to the model") {
  const temp_folder folder;
  const auto model = copy_of(data() / "gguf/llama3-q8_0.gguf", folder), cache = folder.path() / "cache";
  load(model, cache, dtype::bf16);
  fs::create_directory(folder.path() / "links");
  const auto link = folder.path() / "links" / model.filename();
  fs::create_symlink(model, link);
  for (const auto& path : {link, cache / ".." / model.filename()})
    CHECK(load(path, cache, dtype::bf16).matrices_read.empty());
}

TEST_CASE("A packed cache is refused for a model that is not in files") {
  const temp_folder folder;
  const auto source = open_model("synthetic:llama-135m");
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  CHECK(failure_of([&] { load_weights(source, with_cache(folder.path()), dtype::bf16, *backend, {}, [](auto) {}); }) ==
        "`packed_cache` is for models in files, which synthetic:llama-135m is not");
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("A load that is cancelled leaves no packed file") {
  const temp_folder folder;
  const auto source = open_model((data() / "golden/qwen3").string());
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  struct stop {};
  int parts = 0;
  const auto progress = [&](std::size_t, std::size_t) {
    if (++parts == 9)
      throw stop{};
  };
  CHECK_THROWS_AS(load_weights(source, with_cache(folder.path()), dtype::bf16, *backend, progress, [](auto) {}), stop);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1); // the secret
}
