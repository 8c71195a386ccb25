// Weights and configurations: safetensors, GGUF, folders of models, adapters, steering vectors, importance matrices.
#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/checkpoint/importance_file.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/weights.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/adapters/adapter_file.hpp"
#include "runtime/techniques/prompt_embeds/saved_tensor.hpp"
#include "runtime/techniques/steering/steering_file.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/test_data.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace troupe::test {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_bytes = 1 << 20; // of tensors that are read

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// "BF16 8,4 NAME" in each line, as a safetensors file that is well-formed in all else; its values are made up.
std::string tensors_of(std::string_view lines) {
  std::string header = "{";
  std::size_t offset = 0;
  while (!lines.empty()) {
    const auto line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    const auto type_end = std::min(line.find(' '), line.size());
    const auto shape_end = std::min(line.find(' ', type_end + 1), line.size());
    const auto type = line.substr(0, type_end);
    if (shape_end == line.size())
      continue;
    const auto shape = line.substr(type_end + 1, shape_end - type_end - 1);
    const auto parsed = parse_safetensors_type(type);
    std::size_t bytes = parsed && !has_blocks(*parsed) ? size_of(*parsed) : 1;
    for (auto rest = shape; !rest.empty();) {
      std::size_t size = 0;
      const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), size).ptr;
      rest.remove_prefix(std::min(rest.size(), static_cast<std::size_t>(end - rest.data()) + 1));
      bytes = std::min(bytes, most_bytes) * std::min(size, most_bytes);
    }
    bytes = std::min(bytes, most_bytes);
    header += std::string(header.size() > 1 ? "," : "") + '"' + std::string(line.substr(shape_end + 1)) +
      R"(":{"dtype":")" + std::string(type) + R"(","shape":[)" + std::string(shape) + R"(],"data_offsets":[)" +
      std::to_string(offset) + ',' + std::to_string(offset + bytes) + "]}";
    offset += bytes;
  }
  header += '}';
  std::string file;
  for (int i = 0; i < 8; ++i)
    file += static_cast<char>(header.size() >> (8 * i));
  file += header;
  const auto data = file.size();
  file.resize(data + std::min(offset, 4 * most_bytes));
  for (auto at = data; at < file.size(); ++at)
    file[at] = static_cast<char>((at - data) * 37 >> 3 & 0x3f);
  return file;
}

/// The reverse.
std::string lines_of(const std::string& file) {
  std::string lines;
  for (const auto& [name, entry] : read_safetensors_header(bytes_of(file), "a seed")) {
    lines += std::string(to_string(entry.info.type)) + ' ';
    for (std::size_t i = 0; i < entry.info.shape.size(); ++i)
      lines += (i ? "," : "") + std::to_string(entry.info.shape[i]);
    lines += ' ' + name + '\n';
  }
  return lines;
}

std::string safetensors(std::string_view input) {
  return std::to_string(std::min<std::size_t>(read_safetensors_header(bytes_of(input), "x.safetensors").size(), 3));
}

texts safetensors_seeds() {
  texts seeds;
  for (const auto* part : {"1", "2", "3"})
    seeds.push_back(
      data_file(fs::path("tiny/llama-linear") / ("model-0000" + std::string(part) + "-of-00003.safetensors")));
  return seeds;
}

/// Reads what a checkpoint presents, all of it or nothing where it is large.
void read_all(const checkpoint& tensors) {
  std::size_t total = 0;
  for (const auto& name : tensors.tensors()) {
    const auto* info = tensors.find(name);
    if (!info)
      broken("a tensor that is listed and not found");
    total += std::min(info->bytes, most_bytes);
  }
  if (total >= most_bytes)
    return;
  unsigned sum = 0;
  for (const auto& name : tensors.tensors()) {
    const auto data = tensors.read(name);
    const auto* bytes = static_cast<const unsigned char*>(data.get());
    for (std::size_t i = 0; i < tensors.find(name)->bytes; ++i)
      sum += bytes[i];
  }
  volatile auto used = sum;
  (void)used;
}

/// Opens a model and packs its weights.
std::string open_and_load(const fs::path& path) {
  std::string family;
  const auto why = refusal_of([&] {
    const auto source = open_model(path.string());
    family = "opened ";
    read_all(*source.tensors);
    std::size_t bytes = 0;
    for (const auto& name : source.tensors->tensors())
      bytes += std::min(source.tensors->find(name)->bytes, most_bytes);
    if (bytes >= most_bytes)
      return;
    static const auto backend = kernels::make_cpu_backend({.threads = 1});
    load_weights(*source.tensors, source.config, *backend, kernels::dtype::f32);
    family += "loaded ";
  });
  return family + why;
}

std::string gguf(std::string_view input) {
  const auto path = fuzz_file("x.gguf", input);
  const auto content = read_gguf(bytes_of(input), "x.gguf", gguf_part::metadata);
  auto outcome = refusal_of([&] {
    const auto tokens = make_gguf_tokenizer(content.metadata, "x.gguf");
    tokens->decode(tokens->encode("The fox, 12 \xc3\xa9", true), false);
  });
  outcome += refusal_of([&] { open_chat_template(path.string(), ""); });
  return outcome + open_and_load(path);
}

texts gguf_seeds() {
  texts seeds;
  for (const auto* name : {"older_tokenizers/unigram.gguf", "older_tokenizers/unigram-symbols.gguf",
                           "older_tokenizers/wordpiece.gguf", "gguf/spm-vocab.gguf"})
    seeds.push_back(data_file(name));
  return seeds;
}

/// A folder: config.json, then the list of its tensors.
std::string model(std::string_view input) {
  fuzz_file("model/config.json", first_part(input));
  fuzz_file("model/generation_config.json", part_of(input, "generation").value_or("{}"));
  const auto file = fuzz_file("model/model.safetensors", tensors_of(part_of(input, "tensors").value_or("")));
  return open_and_load(file.parent_path());
}

texts model_seeds() {
  texts seeds;
  for (const auto* group : {"tiny_families", "quantised"}) {
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(fs::path(test_data()) / group))
      if (fs::exists(entry.path() / "model.safetensors"))
        folders.push_back(fs::path(group) / entry.path().filename());
    std::ranges::sort(folders);
    for (const auto& folder : folders)
      seeds.push_back(data_file(folder / "config.json") + "\n=== tensors\n" +
                      lines_of(data_file(folder / "model.safetensors")));
  }
  return seeds;
}

std::string config(std::string_view input) {
  const auto document = json::document::parse(first_part(input), "config.json");
  auto outcome = refusal_of([&] { parse_model_config(document); }) +
    refusal_of([&] { parse_quantised_storage(document); });
  const auto generation = json::document::parse(part_of(input, "generation").value_or("{}"), "generation_config.json");
  return outcome + refusal_of([&] { parse_generation_config(&generation, document); });
}

texts config_seeds() {
  texts seeds;
  for (const auto* group : {"tiny_families", "families", "quantised", "tiny"})
    for (const auto& entry : fs::directory_iterator(fs::path(test_data()) / group)) {
      if (!fs::exists(entry.path() / "config.json"))
        continue;
      const auto folder = fs::path(group) / entry.path().filename();
      seeds.push_back(data_file(folder / "config.json"));
      if (fs::exists(entry.path() / "generation_config.json"))
        seeds.back() += "\n=== generation\n" + data_file(folder / "generation_config.json");
    }
  std::ranges::sort(seeds);
  return seeds;
}

std::string gguf_text(const gguf_writer& writer) {
  const auto file = fuzz_folder() / "seed.gguf";
  const std::vector<std::byte> values(4096);
  writer.write(file, [&](std::size_t) { return std::span(values).first(writer.tensor_bytes() / writer.tensors()); });
  return data_file(file);
}

/// Two layers; the second one takes no adapters in its MLP.
std::string lora(std::string_view input) {
  model_products target;
  target.pair_order = {0, 2, 1, 3};
  target.layers = {{{{8, 6}, {4, 6}, {4, 6}, {6, 8}, {5, 6}, {5, 6}, {6, 5}}},
                   {{{8, 6}, {4, 6}, {4, 6}, {6, 8}, {0, 0}, {0, 0}, {0, 0}}}};
  adapter_weights adapter;
  if (input.starts_with("GGUF")) {
    adapter = read_adapter(fuzz_file("adapter.gguf", input), target);
  } else {
    fuzz_file("lora/adapter_config.json", first_part(input));
    const auto file = fuzz_file("lora/adapter_model.safetensors", tensors_of(part_of(input, "tensors").value_or("")));
    adapter = read_adapter(file.parent_path(), target);
  }
  for (const auto& layer : adapter.layers)
    for (const auto& pair : layer)
      if (pair.rank > most_adapter_rank || pair.a.size() % std::max<std::size_t>(pair.rank, 1) != 0)
        broken("an adapter of a wrong rank");
  return "read " + std::to_string(adapter.remarks.size());
}

texts lora_seeds() {
  const std::string stem = "base_model.model.model.layers.0.";
  const auto pair = [&](const std::string& part, const std::string& a, const std::string& b) {
    return "F32 " + a + ' ' + stem + part + ".lora_A.weight\nBF16 " + b + ' ' + stem + part + ".lora_B.weight\n";
  };
  gguf_writer writer;
  writer.add("general.architecture", "llama");
  writer.add("general.type", "adapter");
  writer.add("adapter.type", "lora");
  writer.add("adapter.lora.alpha", 4.0f);
  writer.add_tensor("blk.0.attn_q.weight.lora_a", tensor_type::f32, {2, 6});
  writer.add_tensor("blk.0.attn_k.weight.lora_a", tensor_type::f32, {2, 6});
  return {
    R"({"peft_type":"LORA","r":2,"lora_alpha":8,"rank_pattern":{"down_proj":1},"alpha_pattern":{"mlp.down_proj":3},)"
    R"("use_rslora":true,"target_modules":["q_proj","down_proj"]})"
    "\n=== tensors\n" +
      pair("self_attn.q_proj", "2,6", "8,2") + pair("mlp.down_proj", "1,5", "6,1"),
    R"({"peft_type":"LORA","r":2,"bias":"none","modules_to_save":null,"use_dora":false,"layers_pattern":"layers"})"
    "\n=== tensors\n" +
      pair("self_attn.o_proj", "2,8", "6,2"),
    gguf_text(writer)};
}

std::string steering(std::string_view input) {
  const bool is_gguf = input.starts_with("GGUF");
  const auto directions = read_steering(
    is_gguf ? fuzz_file("steer.gguf", input) : fuzz_file("steer.safetensors", tensors_of(input)), 4, 8);
  if (directions.size() != 4)
    broken("steering of another number of layers");
  for (const auto& layer : directions)
    if (!layer.empty() && (layer.size() != 8 || !std::ranges::all_of(layer, [](float v) { return std::isfinite(v); })))
      broken("steering of another width, or not finite");
  return "read";
}

texts steering_seeds() {
  gguf_writer writer;
  writer.add("general.architecture", "controlvector");
  writer.add("controlvector.model_hint", "llama");
  writer.add("controlvector.layer_count", std::uint32_t{2});
  writer.add_tensor("direction.1", tensor_type::f32, {8});
  writer.add_tensor("direction.3", tensor_type::f32, {8});
  return {"F32 8 direction.0\nBF16 8 direction.3\nF16 1,8 direction.1\n", gguf_text(writer)};
}

std::string importance(std::string_view input) {
  const auto file = fuzz_file(input.starts_with("GGUF") ? "imatrix.gguf" : "imatrix.dat", input);
  const auto table = read_importance(file);
  std::size_t inputs = 0;
  for (const auto& [name, one] : table.tensors)
    inputs += one.mean_squares.size() + one.counts.size();
  if (inputs > input.size())
    broken("an importance matrix that is larger than its file");
  return "read";
}

texts importance_seeds() {
  importance_table table;
  table.tensors["blk.0.attn_q.weight"] = {{1, 2, 3, 4}, {5}};
  table.tensors["blk.0.ffn_up_exps.weight"] = {{1, 2, 3, 4, 0, 0}, {5, 6, 0}};
  table.text = "a.txt";
  table.chunks = 3;
  table.chunk_tokens = 512;
  texts seeds;
  for (const auto* name : {"seed.dat", "seed.gguf"}) {
    write_importance(fuzz_folder() / name, table);
    seeds.push_back(data_file(fuzz_folder() / name));
  }
  return seeds;
}

std::string prompt_embeds(std::string_view input) {
  const auto rows = parse_saved_tensor(input);
  if (rows.values.size() != static_cast<std::size_t>(rows.rows) * static_cast<std::size_t>(rows.width))
    broken("rows of another size than they say");
  return "read";
}

} // namespace

std::vector<fuzz_target> weight_targets() {
  return {{"gguf", gguf, gguf_seeds},
          {"safetensors", safetensors, safetensors_seeds},
          {"config", config, config_seeds},
          {"model", model, model_seeds},
          {"lora", lora, lora_seeds},
          {"steering", steering, steering_seeds},
          {"importance", importance, importance_seeds},
          {"prompt_embeds", prompt_embeds}};
}

} // namespace troupe::test
