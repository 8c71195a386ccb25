// Tensors in a checkpoint that its model does not use.
#include "runtime/engine/loading/loader.hpp"
#include "runtime/import/gguf/gguf_export.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <map>
#include <span>

using namespace troupe;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;
using strings = std::vector<std::string>;
using vectors = std::map<std::string, std::vector<float>>;

/// A checkpoint with additional f32 vectors.
class with_more final : public checkpoint {
public:
  with_more(const checkpoint& base, vectors more) : base_(base), more_(std::move(more)) {
    for (const auto& [name, values] : more_)
      infos_[name] = {tensor_type::f32, {values.size()}, values.size() * sizeof(float)};
  }

  std::string name() const override { return "model"; }
  strings tensors() const override {
    auto names = base_.tensors();
    for (const auto& [name, _] : more_)
      names.push_back(name);
    return names;
  }
  const tensor_info* find(std::string_view tensor) const override {
    const auto found = infos_.find(tensor);
    return found == infos_.end() ? base_.find(tensor) : &found->second;
  }
  tensor_data read(std::string_view tensor) const override {
    const auto found = more_.find(std::string(tensor));
    return found == more_.end() ? base_.read(tensor) : tensor_data(found->second.data(), [](const void*) {});
  }
  std::string where(std::string_view) const override { return "m.safetensors"; }

private:
  const checkpoint& base_;
  vectors more_;
  std::map<std::string, tensor_info, std::less<>> infos_;
};

/// Writes the test file llama3-q8_0, of two layers, with additional vectors.
void write_gguf(const fs::path& to, const vectors& more) {
  const gguf_file from(data() / "gguf/llama3-q8_0.gguf");
  gguf_writer out;
  for (const auto& [key, value] : from.metadata().all())
    out.add(key, value);
  strings names;
  for (const auto& [name, tensor] : from.tensors()) {
    out.add_tensor(name, tensor.info.type, tensor.info.shape);
    names.push_back(name);
  }
  for (const auto& [name, values] : more) {
    out.add_tensor(name, tensor_type::f32, {values.size()});
    names.push_back(name);
  }
  out.write(to, [&](std::size_t index) {
    const auto found = from.tensors().find(names[index]);
    return found == from.tensors().end() ? std::as_bytes(std::span(more.at(names[index])))
                                         : from.bytes_of(found->second);
  });
}

strings load(const fs::path& model) {
  engine_options options;
  options.model = model.string();
  options.compute.threads = 1;
  options.max_context = 64;
  strings lines;
  load_model(options, [&](const load_status& status) {
    if (lines.empty() || lines.back() != status.line)
      lines.push_back(status.line);
  });
  return lines;
}

bool has(const strings& lines, const std::string& line) { return std::ranges::find(lines, line) != lines.end(); }

} // namespace

TEST_CASE("A GGUF file with a bias or sinks that the model does not use is refused by every load and export") {
  const temp_folder folder;
  const auto file = folder.path() / "m.gguf";
  const auto refused = [&](const std::string& gguf, const std::string& hugging_face) {
    CAPTURE(gguf);
    std::vector<float> values(64);
    values.back() = 1000;
    write_gguf(file, {{gguf, values}});
    const auto own = gguf == hugging_face ? "" : " (`" + gguf + "`)";
    const auto expected = file.string() + own + ": tensor `" + hugging_face +
      "` is not one that a llama model uses here, and without it answers would be wrong";
    CHECK(failure_of([&] { load(file); }) == expected);
    kernels::thread_pool pool(1);
    CHECK(failure_of([&] { export_gguf(file.string(), *find_export_format("q8_0"), folder.path() / "out", pool); }) ==
          expected);
    CHECK(!fs::exists(folder.path() / "out"));
  };
  refused("blk.0.attn_k.bias", "model.layers.0.self_attn.k_proj.bias");
  refused("blk.1.attn_v.bias", "model.layers.1.self_attn.v_proj.bias");
  refused("blk.0.ffn_down.bias", "model.layers.0.mlp.down_proj.bias");
  refused("blk.1.attn_q.bias", "model.layers.1.self_attn.q_proj.bias");
  refused("blk.1.attn_norm.bias", "model.layers.1.input_layernorm.bias");
  refused("blk.0.attn_sinks.weight", "model.layers.0.self_attn.sinks");
  refused("blk.0.attn_q.scale", "model.layers.0.self_attn.q_proj.scale");
}

TEST_CASE("Vision parts and layers beyond the configuration's are logged in a line each, by loads and exports") {
  const temp_folder folder;
  const auto file = folder.path() / "m.gguf";
  write_gguf(file, {{"blk.2.attn_k.bias", {7}}, {"v.patch_embd.bias", {1, 2}}, {"mm.0.weight", {3}}});
  const auto beyond = file.string() +
    ": tensor `model.layers.2.self_attn.k_proj.bias` of layers beyond the 2 of the "
    "configuration is not used",
             others = file.string() + ": 2 tensors, the first `mm.0.weight`, are not used";
  const auto lines = load(file);
  CHECK(has(lines, beyond));
  CHECK(has(lines, others));
  kernels::thread_pool pool(1);
  strings said;
  const auto copy = folder.path() / "copy.gguf";
  const auto say = [&](std::string line) { said.push_back(std::move(line)); };
  export_gguf(file.string(), *find_export_format("q4_0"), copy, pool, {.requantise = true}, {}, say);
  CHECK(said == strings{beyond, others});
  CHECK(gguf_file(copy).tensors().size() == gguf_file(data() / "gguf/llama3-q8_0.gguf").tensors().size());
}

TEST_CASE("Tensors without effect are ignored: frequencies, masks, scales of 8 bits, a tied head, zero biases") {
  const auto source = open_model((data() / "golden/qwen2").string());
  const auto check = [&](const std::string& name, std::vector<float> values) {
    return check_tensors(with_more(*source.tensors, {{name, std::move(values)}}), source.config);
  };
  for (const std::string name :
       {"lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.1.attention.masked_bias",
        "model.layers.0.self_attn.k_proj.k_scale", "model.layers.0.mlp.up_proj.input_scale"}) {
    CAPTURE(name);
    CHECK(check(name, {1}).empty());
  }
  CHECK(check("model.layers.0.self_attn.o_proj.bias", {0, -0.0f}).empty());
  CHECK(failure_of([&] {
          check("model.layers.0.self_attn.o_proj.bias", {0, 1e-6f});
        }) ==
        "m.safetensors: tensor `model.layers.0.self_attn.o_proj.bias` is not one that a qwen2 model uses here, and "
        "without it answers would be wrong");
  CHECK(failure_of([&] {
          check("model.layers.0.self_attn.sinks", {0});
        }).starts_with("m.safetensors: tensor `model.layers.0.self_attn.sinks` is not one"));
  CHECK(check("visual.patch_embed.proj.weight", {1}) ==
        strings{"model: tensor `visual.patch_embed.proj.weight` is not used"});
  CHECK(check("model.layers.99.mlp.up_proj.weight", {1}).size() == 1);
}
