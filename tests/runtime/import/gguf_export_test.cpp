#include "tests/runtime/model/model_test_data.hpp"

#include "runtime/checkpoint/quantised/quantise_blocks.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/gguf/gguf_export.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/files/atomic_file.hpp"

#include <cmath>
#include <random>
#include <sys/stat.h>

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<float> values(const checkpoint& tensors, const std::string& name) {
  const auto& info = *tensors.find(name);
  const auto read = tensors.read(name);
  const auto format = *weight_format_of(info.type);
  const auto cols = info.shape.back(), rows = info.shape.size() == 1 ? 1 : info.shape[0];
  std::vector<float> result(rows * cols);
  for (std::size_t row = 0; row < rows; ++row)
    to_floats(format, static_cast<const char*>(read.get()) + row * row_bytes(format, cols), cols, &result[row * cols]);
  return result;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& expected) {
  REQUIRE(got.size() == expected.size());
  double error = 0, all = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += std::pow(double(got[i]) - expected[i], 2);
    all += std::pow(double(expected[i]), 2);
  }
  return error == 0 ? 0 : std::sqrt(error / all); // all may be zeros
}

const export_format& named(std::string_view format) { return *find_export_format(format); }

} // namespace

TEST_CASE("A model written as GGUF reads as the same model: configuration, tokenizer, chat template, tensors") {
  kernels::thread_pool pool(2);
  for (const auto& model : golden_models)
    for (const auto& format : export_formats()) {
      if (format.type != tensor_type::q8_0 && format.type != tensor_type::q4_0 && format.type != tensor_type::q4_1)
        continue;
      CAPTURE(model);
      CAPTURE(std::string(format.name));
      const temp_folder folder;
      const auto file = folder.path() / "m.gguf";
      const auto said = export_gguf(golden(model), format, file, pool);
      const auto original = open_model(golden(model)), written = open_model(file.string());
      CHECK(check_tensors(*written.tensors, written.config).empty());
      auto expected = original.config;
      expected.family = expected.family == "mistral" ? "llama" : expected.family;
      if (expected.rope.type == rope_type::llama3) { // which files say as divisors of the frequencies
        expected.rope = rope_config{.theta = expected.rope.theta};
        const auto plain = inverse_frequencies(expected.rope, expected.head_dim, 1);
        const auto scaled = inverse_frequencies(original.config.rope, expected.head_dim, 1);
        REQUIRE(written.config.rope.divisors.size() == plain.size());
        for (std::size_t i = 0; i < plain.size(); ++i)
          CHECK(plain[i] / written.config.rope.divisors[i] == doctest::Approx(scaled[i]).epsilon(1e-6));
        expected.rope.divisors = written.config.rope.divisors;
      }
      CHECK(written.config == expected);
      const auto tokens = written.load_tokenizer();
      const std::string text = "It's 1234 o'clock,\n na\u00efve fox!";
      CHECK(tokens->encode(text, true) == original.load_tokenizer()->encode(text, true));
      CHECK(written.load_chat_template({}).has_value() == original.load_chat_template({}).has_value());
      for (const auto stop : original.generation.stops)
        CHECK(std::ranges::find(written.generation.stops, stop) != written.generation.stops.end());
      double worst = 0;
      for (const auto& name : original.tensors->tensors()) {
        CAPTURE(name);
        const auto type = written.tensors->find(name)->type;
        const double error = relative_error(values(*written.tensors, name), values(*original.tensors, name));
        const bool fits = original.tensors->find(name)->shape.back() % 32 == 0;
        if (original.tensors->find(name)->shape.size() == 1) {
          CHECK(type == tensor_type::f32);
          CHECK(error == 0);
        } else if (!fits) {
          CHECK(type == tensor_type::f16);
          CHECK(error < 1e-3);
        } else {
          CHECK(type == (name.ends_with("proj.weight") ? format.type : tensor_type::q8_0));
          CHECK(error > 0);
          CHECK(error < (type == tensor_type::q8_0 ? 0.012 : 0.12));
        }
        worst = std::max(worst, error);
      }
      CHECK(said.relative_error <= worst);
      CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
    }
}

TEST_CASE("An export keeps a folder's ends of answers, sampling and template for tools") {
  kernels::thread_pool pool(1);
  const temp_folder folder;
  const auto from = folder.path() / "model", file = folder.path() / "m.gguf";
  std::filesystem::copy(golden("llama-gqa"), from);
  for (const char* name : {"chat_template.jinja", "generation_config.json"})
    std::filesystem::remove(from / name);
  write(
    from / "generation_config.json",
    R"({"eos_token_id": [4, 1, 9, 11], "temperature": 0.5, "top_k": 7, "top_p": 0.75, "repetition_penalty": 1.25})");
  std::filesystem::create_directory(from / "additional_chat_templates");
  write(from / "chat_template.jinja", "plain");
  write(from / "additional_chat_templates/tool_use.jinja", "tools");
  export_gguf(from.string(), named("q8_0"), file, pool);
  const auto original = open_model(from.string()), written = open_model(file.string());
  CHECK(written.generation.stops == std::vector<token_id>{1, 4, 9, 11});
  const auto &s = written.generation.sampling, &o = original.generation.sampling;
  CHECK(std::tuple(o.temperature, o.top_k, o.top_p, o.repetition_penalty) == std::tuple(0.5f, 7, 0.75f, 1.25f));
  CHECK(std::tuple(s.temperature, s.top_k, s.top_p, s.repetition_penalty) ==
        std::tuple(o.temperature, o.top_k, o.top_p, o.repetition_penalty));
  const auto chat = *written.load_chat_template("");
  CHECK(chat.render({.messages = jinja::value::list({})}) == "plain");
  CHECK(chat.render({.messages = jinja::value::list({}), .tools = jinja::value::list({jinja::value("f")})}) == "tools");
}

TEST_CASE("A quantised model is quantised again only on request") {
  kernels::thread_pool pool(1);
  const temp_folder folder;
  const auto file = folder.path() / "m.gguf";
  const auto source = (data() / "gguf/llama3-q8_0.gguf").string();
  CHECK(failure_of([&] { export_gguf(source, named("q4_0"), file, pool); }) ==
        source +
          ": its matrices are quantised already, to Q8_0; take the original, or quantise it again with --requantize, "
          "which adds to its error");
  for (const bool requantise : {false, true})
    CHECK(failure_of([&] { export_gguf(source, named("q8_0"), file, pool, {.requantise = requantise}); }) ==
          source + ": its matrices are Q8_0 already");
  CHECK(!std::filesystem::exists(file));

  const auto result = export_gguf(source, named("q4_0"), file, pool, {.requantise = true});
  CHECK(result.relative_error > 0.01);
  CHECK(result.relative_error < 0.12);
  CHECK(result.written_bytes < result.stored_bytes * 3 / 4);
  const gguf_file before(source), after(file);
  const auto old = open_model(source), made = open_model(file.string());
  for (const auto& name : old.tensors->tensors()) {
    CAPTURE(name);
    const bool changes = name.ends_with("proj.weight");
    CHECK((made.tensors->find(name)->type == tensor_type::q4_0) == changes);
    const double error = relative_error(values(*made.tensors, name), values(*old.tensors, name));
    CHECK((error > 0) == changes);
    CHECK(error < 0.12);
  }
  for (const auto& [key, value] : before.metadata().all())
    if (key != "general.file_type" && key != "general.quantization_version")
      CHECK(std::ranges::equal(after.metadata().find(key)->bytes, value.bytes));
  CHECK(failure_of([&] {
          export_gguf(file.string(), named("q4_0"), file, pool);
        }).ends_with("is the file being read; give the result another name"));
}

TEST_CASE("Models without a tokenizer and files that cannot be written are refused, and leave no file behind") {
  kernels::thread_pool pool(1);
  const temp_folder folder;
  const auto file = folder.path() / "m.gguf";
  CHECK(failure_of([&] { export_gguf("synthetic:llama-135m", named("q8_0"), file, pool); }) ==
        "synthetic:llama-135m has no tokenizer, which a GGUF file must have");
  CHECK(failure_of([&] {
          export_gguf(golden("qwen3"), named("q8_0"), folder.path() / "none" / "m.gguf", pool);
        }).find("cannot be written: No such file") != std::string::npos);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("An export replaces only a regular file, and only by a complete one") {
  namespace fs = std::filesystem;
  kernels::thread_pool pool(1);
  const temp_folder folder;
  const auto at = [&](const char* name) { return folder.path() / name; };
  const auto written = [&](const fs::path& file) { export_gguf(golden("qwen3"), named("q8_0"), file, pool); };
  REQUIRE(mkfifo(at("pipe").c_str(), 0600) == 0);
  fs::create_symlink("nowhere", at("link"));
  fs::create_directory(at("folder"));
  const std::string another = "; give the result another name";
  CHECK(failure_of([&] { written(at("pipe")); }) ==
        at("pipe").string() + ": exists and is not a regular file" + another);
  CHECK(failure_of([&] { written(at("link")); }) == at("link").string() + ": exists and is a link" + another);
  CHECK(failure_of([&] { written(at("folder")); }) == at("folder").string() + ": exists and is a folder" + another);
  CHECK(failure_of([&] { written(""); }) == "`` does not name a file");
  CHECK(fs::is_fifo(at("pipe")));
  CHECK(fs::is_symlink(at("link")));
  CHECK(!fs::exists(at("nowhere")));

  const auto file = at("m.gguf");
  const std::vector<fs::path> bystanders{at("m.gguf.part"), at("m.gguf.partial"), at("m.gguf.metadata")};
  for (const auto& bystander : bystanders)
    write(bystander, "keep me");
  write(file, "old");
  { // who writes it in another process
    const auto other = atomic_file::begin(file, 8);
    REQUIRE(other);
    CHECK(failure_of([&] { written(file); }) == file.string() + ": another process is writing it");
  }
  CHECK(content(file) == "old");
  written(file);
  CHECK(failure_of([&] { open_model(file.string()); }).empty());
  for (const auto& bystander : bystanders)
    CHECK(content(bystander) == "keep me");
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 7);
}

TEST_CASE("4-bit codes are searched for: the error is below that of the plain scale, special values survive") {
  using kernels::weight_format;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  constexpr std::size_t cols = 4096;
  std::vector<float> row(cols), back(cols);
  for (auto& x : row)
    x = normal(random);
  std::string bytes(row_bytes(weight_format::f32, cols), '\0'); // enough for all
  const auto error = [&](weight_format format) {
    quantise_row(format, row.data(), cols, bytes.data());
    to_floats(format, bytes.data(), cols, back.data());
    return relative_error(back, row);
  };
  double plain = 0; // of q4_0 with the scale that the largest magnitude gives
  for (std::size_t group = 0; group < cols; group += 32) {
    float extreme = 0;
    for (std::size_t i = group; i < group + 32; ++i)
      extreme = std::abs(row[i]) > std::abs(extreme) ? row[i] : extreme;
    for (std::size_t i = group; i < group + 32; ++i)
      plain += std::pow(std::min(7.0f, std::nearbyint(row[i] / (extreme / -8))) * (extreme / -8) - row[i], 2);
  }
  plain = std::sqrt(plain / cols);
  CHECK(error(weight_format::q4_0) < 0.95 * plain);
  CHECK(error(weight_format::q4_1) < error(weight_format::q4_0));
  CHECK(error(weight_format::q8_0) < 0.1 * error(weight_format::q4_1));
  CHECK(error(weight_format::f16) < 1e-3);
  CHECK(error(weight_format::f32) == 0);
  std::fill(row.begin(), row.end(), 0.0f);
  row[40] = INFINITY;
  for (const auto format : {weight_format::q8_0, weight_format::q4_0, weight_format::q4_1}) {
    quantise_row(format, row.data(), cols, bytes.data());
    to_floats(format, bytes.data(), cols, back.data());
    CHECK(back[0] == 0);
    CHECK(std::isnan(back[40]));
  }
}

TEST_CASE("Families are written as they are read: the same tensors, and the same description") {
  kernels::thread_pool pool(2);
  const std::vector<std::string> models{
    "afmoe",     "bloom",         "cohere2",      "cohere2-moe", "exaone-moe",  "exaone4",   "gemma3",
    "glm4-moe",  "glm4-moe-lite", "gpt-neox",     "gpt-oss",     "gpt2",        "granite",   "hy-v3",
    "mellum",    "minicpm3",      "mixtral",      "nanochat",    "olmo2",       "olmoe",     "phi3",
    "qwen3-moe", "youtu",         "deepseek-v32", "deepseek-v4", "glm-moe-dsa", "qwen4-exp", "inkling"};
  for (const auto& model : models) {
    CAPTURE(model);
    const temp_folder folder;
    const auto file = folder.path() / "m.gguf";
    const auto from = (data() / "families" / model).string();
    export_gguf(from, named("q8_0"), file, pool);
    const auto original = open_model(from), written = open_model(file.string());
    CHECK(written.config.family == (model == "glm4-moe-lite" ? "deepseek_v3" : original.config.family));
    CHECK(check_tensors(*written.tensors, written.config).empty());
    for (const auto& name : tensors_used(original.config)) {
      CAPTURE(name);
      REQUIRE(written.tensors->find(name));
      CHECK(written.tensors->find(name)->shape == original.tensors->find(name)->shape);
      CHECK(relative_error(values(*written.tensors, name), values(*original.tensors, name)) < 0.012);
    }
    // Written again, from the file.
    const auto again = folder.path() / "again.gguf";
    export_gguf(file.string(), named("q4_1"), again, pool, {.requantise = true});
    const auto coarse = open_model(again.string());
    for (const auto& name : tensors_used(original.config))
      CHECK(relative_error(values(*coarse.tensors, name), values(*original.tensors, name)) < 0.12);
  }
}
