// Reading adapters of PEFT and llama.cpp, and refusing what is none.
#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/techniques/adapters/adapter_file.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <limits>
#include <map>

using namespace troupe;
using namespace troupe::test;

namespace {

using peft_tensors = std::map<std::string, std::pair<std::vector<std::size_t>, std::vector<float>>>;

/// Two layers; the second one takes no adapters in its MLP. Heads of 4 rows.
model_products small_target() {
  model_products target;
  target.pair_order = {0, 2, 1, 3};
  target.layers = {{{{8, 6}, {4, 6}, {4, 6}, {6, 8}, {5, 6}, {5, 6}, {6, 5}}},
                   {{{8, 6}, {4, 6}, {4, 6}, {6, 8}, {0, 0}, {0, 0}, {0, 0}}}};
  return target;
}

std::vector<float> counted(std::size_t count, float from = 1) {
  std::vector<float> values(count);
  for (auto& v : values)
    v = from++;
  return values;
}

const std::string q_stem = "base_model.model.model.layers.0.self_attn.q_proj.lora_",
                  down_stem = "base_model.model.model.layers.0.mlp.down_proj.lora_";

/// q of layer 0 with rank 2, and down with rank 1.
peft_tensors small_tensors() {
  return {{q_stem + "A.weight", {{2, 6}, counted(12)}},
          {q_stem + "B.weight", {{8, 2}, counted(16)}},
          {down_stem + "A.weight", {{1, 5}, counted(5)}},
          {down_stem + "B.weight", {{6, 1}, counted(6)}}};
}

const std::string small_config =
  R"({"peft_type":"LORA","r":2,"lora_alpha":8,"rank_pattern":{"down_proj":1},"alpha_pattern":{"mlp.down_proj":3}})";

void write_peft(const std::filesystem::path& folder, const std::string& config, const peft_tensors& tensors) {
  std::filesystem::create_directories(folder);
  write(folder / "adapter_config.json", config);
  std::string header = "{", data;
  for (const auto& [name, tensor] : tensors) {
    const auto& [shape, values] = tensor;
    std::string sizes;
    for (const auto size : shape)
      sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
    header += (header.size() > 1 ? ",\"" : "\"") + name + R"(":{"dtype":"F32","shape":[)" + sizes +
      R"(],"data_offsets":[)" + std::to_string(data.size()) + ",";
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    header += std::to_string(data.size()) + "]}";
  }
  write(folder / "adapter_model.safetensors", safetensors(header + "}", 0) + data);
}

/// The sentence without the folder.
std::string peft_complaint(const std::string& config, const peft_tensors& tensors) {
  const temp_folder folder;
  write_peft(folder.path(), config, tensors);
  auto what = failure_of([&] { read_adapter(folder.path(), small_target()); });
  const auto prefix = folder.path().string() + "/";
  return what.starts_with(prefix) ? what.substr(prefix.size()) : what;
}

std::string with_key(const std::string& more) { return R"({"peft_type":"LORA","r":2,)" + more + "}"; }

void write_gguf_adapter(const std::filesystem::path& file, const std::string& architecture,
                        const std::string& kind = "lora", const std::string& tensor = "blk.0.attn_q.weight",
                        const std::vector<std::int32_t>& invoked_by = {}) {
  gguf_writer writer;
  if (!invoked_by.empty())
    writer.add("adapter.alora.invocation_tokens", invoked_by);
  writer.add("general.architecture", std::string_view(architecture));
  writer.add("general.type", std::string_view("adapter"));
  writer.add("adapter.type", std::string_view(kind));
  writer.add("adapter.lora.alpha", 4.0f);
  const auto a = counted(12), b = counted(16);
  writer.add_tensor(tensor + ".lora_a", tensor_type::f32, {2, 6});
  writer.add_tensor(tensor + ".lora_b", tensor_type::f32, {8, 2});
  writer.write(file, [&](std::size_t i) { return std::as_bytes(std::span(i == 0 ? a : b)); });
}

const low_rank& part_of(const adapter_weights& adapter, projection which) {
  return adapter.layers[0][static_cast<std::size_t>(which)];
}

} // namespace

TEST_CASE("PEFT adapters: ranks and alphas of modules, and rank-stabilised scales") {
  const temp_folder folder;
  write_peft(folder.path(), small_config, small_tensors());
  const auto adapter = read_adapter(folder.path(), small_target());
  REQUIRE(adapter.layers.size() == 2);
  CHECK(part_of(adapter, projection::q).rank == 2);
  CHECK(part_of(adapter, projection::q).a == counted(12));
  CHECK(part_of(adapter, projection::q).b[3] == 4 * 8.0f / 2);
  CHECK(part_of(adapter, projection::down).rank == 1);
  CHECK(part_of(adapter, projection::down).b[2] == 3 * 3.0f / 1);
  CHECK(part_of(adapter, projection::k).rank == 0);
  CHECK(adapter.layers[1][0].rank == 0);

  auto rooted = small_config;
  rooted.insert(1, R"("use_rslora":true,)");
  write_peft(folder.path(), rooted, small_tensors());
  CHECK(part_of(read_adapter(folder.path(), small_target()), projection::q).b[0] ==
        doctest::Approx(8 / std::sqrt(2.0)));

  auto reordered = small_target();
  reordered.family_pairs = true;
  write_peft(folder.path(), small_config, small_tensors());
  const auto other = read_adapter(folder.path(), reordered);
  CHECK(part_of(other, projection::q).b[2] == 5 * 4.0f); // row 1 is stored as row 2
  CHECK(part_of(other, projection::q).b[12] == 11 * 4.0f);
  CHECK(part_of(other, projection::down).b == part_of(adapter, projection::down).b);
}

TEST_CASE("PEFT adapters of multimodal models: the text's layers under the names that these have") {
  const temp_folder folder;
  for (const std::string prefix :
       {"model.language_model.", "language_model.model.", "model.text_model.", "thinker.model."}) {
    CAPTURE(prefix);
    peft_tensors tensors;
    for (const auto& [name, values] : small_tensors()) {
      const std::string before = "base_model.model.";
      tensors[before + prefix + name.substr(before.size() + 6)] = values;
    }
    auto config = small_config; // patterns are of the names as stored
    config.replace(config.find("mlp.down_proj"), 13, prefix + "layers.0.mlp.down_proj");
    write_peft(folder.path(), config, tensors);
    const auto adapter = read_adapter(folder.path(), small_target());
    CHECK(part_of(adapter, projection::q).b[3] == 4 * 8.0f / 2);
    CHECK(part_of(adapter, projection::down).b[2] == 3 * 3.0f / 1);
  }
  const std::string vision = "base_model.model.model.visual.layers.0.self_attn.q_proj.lora_A.weight";
  CHECK(peft_complaint(small_config, {{vision, {{2, 6}, counted(12)}}})
          .starts_with("adapter_model.safetensors: tensor `" + vision + "` is not a low-rank matrix of a layer's"));
}

TEST_CASE("GGUF adapters: alpha by rank, and the order of q that their architecture has") {
  const temp_folder folder;
  write_gguf_adapter(folder.path() / "a.gguf", "qwen2");
  const auto plain = read_adapter(folder.path() / "a.gguf", small_target());
  CHECK(part_of(plain, projection::q).rank == 2);
  CHECK(part_of(plain, projection::q).a == counted(12));
  CHECK(part_of(plain, projection::q).b[2] == 3 * 2.0f);
  for (const auto* architecture : {"llama", "granite", "smollm3", "glm4", "command-r", "arcee", "ernie4_5"}) {
    CAPTURE(architecture);
    write_gguf_adapter(folder.path() / "b.gguf", architecture);
    const auto paired = read_adapter(folder.path() / "b.gguf", small_target());
    CHECK(part_of(paired, projection::q).b[2] == 5 * 2.0f); // row 1 of a head is its third
    CHECK(part_of(paired, projection::q).b[4] == 3 * 2.0f);
  }

  write_gguf_adapter(folder.path() / "c.gguf", "qwen2", "other");
  CHECK(failure_of([&] {
          read_adapter(folder.path() / "c.gguf", small_target());
        }).ends_with("c.gguf: `adapter.type` is `other`, expected `lora`"));
  write_gguf_adapter(folder.path() / "e.gguf", "qwen2", "lora", "blk.0.attn_q.weight", {1, 2});
  CHECK(failure_of([&] {
          read_adapter(folder.path() / "e.gguf", small_target());
        }).ends_with("`adapter.alora.invocation_tokens` is set, which is not supported: adapters are plain LoRA"));
  write_gguf_adapter(folder.path() / "d.gguf", "qwen2", "lora", "token_embd.weight");
  CHECK(failure_of([&] { read_adapter(folder.path() / "d.gguf", small_target()); })
          .ends_with("is not a low-rank matrix of a layer's attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, "
                     "ffn_down; others are not supported"));
}

TEST_CASE("What is no plain LoRA is refused by name") {
  const auto tensors = small_tensors();
  const auto starts = [&](const std::string& config, const std::string& wanted) {
    const auto what = peft_complaint(config, tensors);
    CHECK_MESSAGE(what.starts_with(wanted), what);
  };
  starts(R"({"peft_type":"IA3","r":2})", "adapter_config.json: `peft_type` is `IA3`, which is not supported");
  starts(R"({"r":2})", "adapter_config.json: `peft_type` is missing");
  starts(R"({"peft_type":"LORA"})", "adapter_config.json: `r`");
  starts(R"({"peft_type":"LORA","r":0})", "adapter_config.json: `r`");
  starts(R"({"peft_type":"LORA","r":1e9})", "adapter_config.json: `r`");
  starts(R"([])", "adapter_config.json");
  starts(with_key(R"("use_dora":true)"), "adapter_config.json: `use_dora` is true");
  starts(with_key(R"("use_dora":"yes")"), "adapter_config.json: `use_dora` is \"yes\"");
  starts(with_key(R"("lora_bias":1)"), "adapter_config.json: `lora_bias` is 1");
  starts(with_key(R"("bias":"all")"), "adapter_config.json: `bias` is `all`");
  starts(with_key(R"("fan_in_fan_out":true)"), "adapter_config.json: `fan_in_fan_out` is true");
  starts(with_key(R"("init_lora_weights":"pissa_niter_4")"), "adapter_config.json: `init_lora_weights` is");
  starts(with_key(R"("rank_pattern":{".*q":3})"), "adapter_config.json: `rank_pattern`");
  starts(with_key(R"("rank_pattern":{"q_proj":0})"), "adapter_config.json: `rank_pattern`");
  starts(with_key(R"("lora_alpha":"much")"), "adapter_config.json: `lora_alpha`");
}

TEST_CASE("Modules to save of which none is saved are a remark, and saved ones are refused") {
  auto config = small_config;
  config.insert(config.find('{') + 1, R"("modules_to_save":["lm_head","embed_tokens"],)");
  const temp_folder folder;
  write_peft(folder.path(), config, small_tensors());
  const auto read = read_adapter(folder.path(), small_target());
  CHECK(read.remarks ==
        std::vector{(folder.path() / "adapter_config.json").string() +
                    ": `modules_to_save` is set, but no module is saved; it has no effect"});
  CHECK(part_of(read, projection::q).rank == 2);
  write_peft(folder.path(), small_config, small_tensors());
  CHECK(read_adapter(folder.path(), small_target()).remarks.empty());
  for (const std::string saved :
       {"base_model.model.lm_head.weight", "base_model.model.lm_head.modules_to_save.weight"}) {
    auto tensors = small_tensors();
    tensors[saved] = {{2, 6}, counted(12)};
    CHECK(peft_complaint(config, tensors)
            .starts_with("adapter_model.safetensors: tensor `" + saved + "` is not a low-rank"));
  }
}

TEST_CASE("Tensors of other names, shapes or values are refused with what was expected") {
  const auto complaint = [](const auto& change) {
    auto tensors = small_tensors();
    change(tensors);
    return peft_complaint(small_config, tensors);
  };
  const auto ends = [](const std::string& what, const std::string& wanted) {
    CHECK_MESSAGE(what.ends_with(wanted), what);
  };
  ends(complaint([](peft_tensors& t) { t.clear(); }), ": has no tensors, expected pairs of low-rank matrices");
  ends(complaint([](peft_tensors& t) { t.erase(q_stem + "B.weight"); }), "has no counterpart lora_B");
  ends(complaint([](peft_tensors& t) { t.erase(down_stem + "A.weight"); }), "has no counterpart lora_A");
  ends(complaint([](peft_tensors& t) {
         t[q_stem + "A.weight"] = {{2, 7}, counted(14)};
       }),
       "has the shape [2, 7], expected [2, 6]");
  ends(complaint([](peft_tensors& t) {
         t[q_stem + "B.weight"] = {{2, 8}, counted(16)};
       }),
       "has the shape [2, 8], expected [8, 2]");
  ends(complaint([](peft_tensors& t) {
         t[q_stem + "A.weight"] = {{12}, counted(12)};
       }),
       "has the shape [12], expected [rank, 6]");
  ends(complaint([](peft_tensors& t) {
         t[q_stem + "A.weight"] = {{3, 6}, counted(18)};
       }),
       "has the rank 3, expected 2 as adapter_config.json says");
  ends(complaint([](peft_tensors& t) { t[q_stem + "A.weight"] = {{0, 6}, {}}; }), "has the rank 0, expected 1 to 512");
  ends(complaint([](peft_tensors& t) { t[q_stem + "A.weight"].second[4] = std::numeric_limits<float>::infinity(); }),
       "has values that are not finite");
  ends(complaint([](peft_tensors& t) { t[q_stem + "B.weight"].second[4] = 3e38f; }),
       "has values that are not finite once they are scaled");
  const auto other = [&](const std::string& name) {
    return complaint([&](peft_tensors& t) { t["base_model.model." + name] = {{2, 6}, counted(12)}; });
  };
  ends(other("model.layers.2.self_attn.q_proj.lora_A.weight"),
       "is for a layer that the model does not have; its layers are 0 to 1");
  ends(other("model.layers.1.mlp.up_proj.lora_A.weight"), "is for a matrix that takes no adapter in this model");
  const std::string unknown =
    "is not a low-rank matrix of a layer's q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
    "down_proj (lora_A or lora_B); others are not supported";
  for (const auto* name :
       {"lm_head.lora_A.weight", "model.embed_tokens.lora_embedding_A",
        "model.layers.0.self_attn.qkv_proj.lora_A.weight", "model.layers.0.self_attn.q_proj.lora_magnitude_vector",
        "model.layers.x.self_attn.q_proj.lora_A.weight", "model.layers..lora_A.weight",
        "model.layers.0.mlp.experts.0.up_proj.lora_A.weight", ".lora_A.weight",
        "model.layers.99999999999999999999.self_attn.q_proj.lora_A.weight"})
    ends(other(name), unknown);
  const temp_folder folder;
  CHECK(!failure_of([&] { read_adapter(folder.path() / "none", small_target()); }).empty());
  write(folder.path() / "x.bin", "not an adapter");
  ends(failure_of([&] { read_adapter(folder.path() / "x.bin", small_target()); }),
       "expected a folder with adapter_config.json and adapter_model.safetensors, or a GGUF file");
}
