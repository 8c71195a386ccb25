// Folders with 2 of every 4 weights: which stay, and that they read back as they are.
#include "runtime/import/export/pruned_export.hpp"

#include "kernels/formats/pruned_weights.hpp"
#include "runtime/checkpoint/quantised/pruned_tensors.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/import/export/folder_export.hpp"
#include "runtime/import/gguf/gguf_names.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cmath>

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<float> weights_of(const checkpoint& tensors, const std::string& name) {
  const auto& info = *tensors.find(name);
  const auto format = *weight_format_of(info.type);
  const auto data = tensors.read(name);
  const auto cols = info.shape.back(), rows = info.shape.size() == 1 ? 1 : info.shape[0];
  std::vector<float> values(rows * cols);
  for (std::size_t r = 0; r < rows; ++r)
    to_floats(format, static_cast<const char*>(data.get()) + r * row_bytes(format, cols), cols, &values[r * cols]);
  return values;
}

/// The importance of inputs that grow from the first to the last.
importance_table rising_importance(const model_source& source) {
  importance_table table;
  for (const auto& name : layer_matrices(source.config)) {
    auto& to = table.tensors[gguf_tensor_name(name)];
    to.counts = {1};
    for (std::size_t i = 0; i < source.tensors->find(name)->shape[1]; ++i)
      to.mean_squares.push_back(std::pow(4.0f, float(i % 4)));
  }
  return table;
}

} // namespace

TEST_CASE("The two largest of four weights stay, alone, or by the size of their inputs; all else is as it was") {
  kernels::thread_pool pool(2);
  for (const std::string model : {"llama-gqa", "qwen3"})
    for (const bool wanda : {false, true}) {
      CAPTURE(model);
      CAPTURE(wanda);
      const temp_folder folder;
      const auto original = open_model(golden(model));
      const auto table = rising_importance(original);
      const auto result = export_pruned(golden(model), folder.path() / "out", pool, {wanda ? &table : nullptr});
      const auto written = open_model((folder.path() / "out").string());
      CHECK(written.config == original.config);
      CHECK(check_tensors(*written.tensors, written.config).empty());
      const auto matrices = layer_matrices(original.config);
      double dropped = 0, all = 0;
      std::size_t count = 0;
      for (const auto& name : original.tensors->tensors()) {
        CAPTURE(name);
        const auto before = weights_of(*original.tensors, name), after = weights_of(*written.tensors, name);
        const auto type = written.tensors->find(name)->type;
        if (std::ranges::find(matrices, name) == matrices.end()) {
          CHECK(before == after);
          CHECK(type == original.tensors->find(name)->type);
          continue;
        }
        CHECK(is_pruned(*type.format()));
        CHECK(whole_format(*type.format()) == *original.tensors->find(name)->type.format());
        count += before.size();
        bool right = true;
        for (std::size_t four = 0; four < before.size() / 4; ++four) {
          std::vector<double> scores, kept;
          for (std::size_t i = 0; i < 4; ++i) {
            const double w = before[4 * four + i], score = std::abs(w) * (wanda ? std::pow(2.0, double(i)) : 1);
            scores.push_back(score);
            all += w * w;
            if (after[4 * four + i] != 0) {
              right = right && after[4 * four + i] == before[4 * four + i];
              kept.push_back(score);
            } else {
              dropped += w * w;
            }
          }
          std::ranges::sort(scores, std::greater());
          std::ranges::sort(kept, std::greater());
          right = right && kept == std::vector<double>{scores[0], scores[1]};
        }
        CHECK(right);
      }
      CHECK(result.weights == count);
      CHECK(result.relative_error == doctest::Approx(std::sqrt(dropped / all)).epsilon(1e-6));
      const bool wide = original.tensors->find(matrices[0])->type == tensor_type::f32;
      CHECK(result.bits_per_weight() == doctest::Approx(wide ? 17 : 9));
    }
}

TEST_CASE("Feedback makes up for the weights that go: less error of what a matrix gives than by magnitude") {
  constexpr std::size_t n = 64, rows = 16;
  std::vector<double> hessian(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) // correlated inputs of uneven size
      hessian[i * n + j] = (1 + double(i % 5)) * (1 + double(j % 5)) * std::pow(0.8, std::abs(double(i) - double(j)));
  kernels::thread_pool pool(1);
  const auto feedback = make_error_feedback(hessian, n, false, pool);
  std::vector<float> weights(rows * n);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = std::sin(float(i * i % 997)) * 0.05f;
  auto pruned = weights, largest = weights;
  prune_with_feedback(kernels::weight_format::bf16, pruned, feedback);
  for (std::size_t i = 0; i < largest.size(); i += 4) {
    float scores[4];
    for (std::size_t k = 0; k < 4; ++k)
      scores[k] = std::abs(largest[i + k]);
    for (std::size_t k = 0; k < 4; ++k)
      if ((kept_of_four(scores) >> k & 1) == 0)
        largest[i + k] = 0;
  }
  const auto error = [&](const std::vector<float>& got) {
    double sum = 0;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j)
          sum += double(got[r * n + i] - weights[r * n + i]) * hessian[i * n + j] *
            (got[r * n + j] - weights[r * n + j]);
    return sum;
  };
  CHECK(error(pruned) < 0.6 * error(largest));
  for (std::size_t i = 0; i < pruned.size(); i += 4) {
    CHECK(std::count(&pruned[i], &pruned[i] + 4, 0.0f) == 2);
    for (std::size_t k = 0; k < 4; ++k)
      CHECK(pruned[i + k] == rounded_to(kernels::weight_format::bf16, pruned[i + k]));
  }
}

TEST_CASE("What cannot be pruned is refused before anything is written") {
  kernels::thread_pool pool(1);
  const temp_folder folder;
  const auto out = folder.path() / "out";
  const auto refused = [&](const std::string& model, const pruning& how = {}) {
    const auto why = failure_of([&] { export_pruned(model, out, pool, how); });
    CHECK(!std::filesystem::exists(out));
    return why;
  };
  const importance_table other;
  CHECK(refused(golden("llama-gqa"), {&other}).starts_with("the importance matrix is of another model: "));
  CHECK(refused((data() / "gguf/blocks.gguf").string()) != "");
  export_pruned(golden("llama-gqa"), folder.path() / "once", pool);
  CHECK(refused((folder.path() / "once").string()).find("its matrices are quantised already") != std::string::npos);
  CHECK(failure_of([&] {
          export_pruned(golden("llama-gqa"), folder.path() / "once", pool);
        }).find("is there already; give the result another name") != std::string::npos);
}

TEST_CASE("Of four scores the two largest are kept, of equal ones the first") {
  const auto kept = [](float a, float b, float c, float d) { return kept_of_four(std::vector<float>{a, b, c, d}); };
  CHECK(kept(1, 2, 3, 4) == 0b1100);
  CHECK(kept(4, 1, 3, 2) == 0b0101);
  CHECK(kept(0, 0, 0, 0) == 0b0011);
  CHECK(kept(1, 2, 2, 2) == 0b0110);
  CHECK(kept(0, 5, 0, 0) == 0b0011);
}
