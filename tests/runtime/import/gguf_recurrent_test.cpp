// GGUF files of families with recurrent layers, as `troupe quantize` writes them, are the same models.
#include "kernels/cpu/thread_pool.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/gguf/gguf_export.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <filesystem>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A folder with a checkpoint and, if it has none, a tokenizer.
std::string copied_with_tokenizer(const std::string& model, const std::filesystem::path& folder) {
  const auto to = folder / "model";
  std::filesystem::copy(data() / model, to, std::filesystem::copy_options::recursive);
  if (!std::filesystem::exists(to / "tokenizer.json"))
    std::filesystem::copy_file(data() / "tiny_mtp/qwen3-5/tokenizer.json", to / "tokenizer.json");
  return to.string();
}

std::vector<row_logits> logits_of_recurrent(const model_source& source, const std::vector<token_id>& ids) {
  engine e(source, targets().back(), 1, dtype::f32);
  return e.step({{ids, 0, first_blocks(ids.size())}});
}

} // namespace

TEST_CASE("GGUF: recurrent families written as f32 give the logits of the checkpoints") {
  kernels::thread_pool pool(1);
  for (const std::string model :
       {"families/granite-hybrid", "families/lfm2", "families/nemotron-h", "families/qwen3-5", "families/qwen3-next",
        "tiny_families/bamba", "tiny_families/falcon-h1", "tiny_families/falcon-mamba",
        "tiny_families/granite-hybrid-dense", "tiny_families/jamba", "tiny_families/mamba", "tiny_families/kimi-linear",
        "tiny_families/lfm2-adjusted", "tiny_families/lfm2-moe", "tiny_families/mamba2", "tiny_families/nemotron-h-moe",
        "tiny_families/qwen3-5-moe", "tiny_mtp/qwen3-next"}) {
    CAPTURE(model);
    const temp_folder folder;
    const auto from = copied_with_tokenizer(model, folder.path()), file = (folder.path() / "m.gguf").string();
    export_gguf(from, *find_export_format("f32"), file, pool);
    const auto original = open_model(from), written = open_model(file);
    CHECK(check_tensors(*written.tensors, written.config,
                        written.mtp ? tensors_used(*written.mtp) : std::set<std::string>())
            .empty());
    std::mt19937 random(4);
    const auto ids = random_tokens(random, 50, original.config.vocab);
    const auto expected = logits_of_recurrent(original, ids), got = logits_of_recurrent(written, ids);
    double worst = 0;
    for (std::size_t i = 0; i < ids.size(); ++i)
      worst = std::max(worst, largest_difference(got[i], expected[i]));
    CHECK(worst < 1e-4); // multipliers and decays are rounded once more
  }
}

TEST_CASE("GGUF: layers of multi-token prediction are written and read") {
  kernels::thread_pool pool(1);
  const auto values = [](const checkpoint& tensors, const wanted_tensor& wanted, float offset) {
    const auto& info = require_tensor(tensors, wanted);
    std::size_t count = 1;
    for (const auto size : wanted.shape)
      count *= size;
    std::vector<float> result(count);
    to_floats(*weight_format_of(info.type), tensors.read(wanted.name).get(), count, result.data());
    for (float& v : result)
      v += offset;
    return result;
  };
  for (const std::string model : {"deepseek-v3", "glm4-moe", "qwen3-5", "qwen3-next"}) {
    CAPTURE(model);
    const temp_folder folder;
    const auto from = (data() / "tiny_mtp" / model).string(), file = (folder.path() / "m.gguf").string();
    export_gguf(from, *find_export_format("f32"), file, pool);
    const auto original = open_model(from), written = open_model(file);
    REQUIRE(original.mtp.has_value());
    REQUIRE(written.mtp.has_value());
    CHECK(written.config.layers == original.config.layers);
    CHECK(written.mtp->chains_norm == original.mtp->chains_norm);
    CHECK(check_tensors(*written.tensors, written.config, tensors_used(*written.mtp)).empty());
    for (const auto& wanted : tensors_around(*original.mtp)) {
      const bool norm = wanted.shape.size() == 1;
      CAPTURE(wanted.name);
      CHECK(values(*written.tensors, wanted, 0) ==
            values(*original.tensors, wanted, norm ? original.mtp->norm_offset : 0));
    }
    for (const auto& wanted : tensor_names(original.mtp->config).all()) {
      CAPTURE(wanted.name);
      CHECK(values(*written.tensors, wanted, 0) == values(*original.tensors, wanted, 0));
    }
  }
}
