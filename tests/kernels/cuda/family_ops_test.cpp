// The ops of further families on a GPU: layer norm, activations, shaped attention, sums and copies of rows, mixtures.
#include "kernels/gaussian_gates.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;

namespace {

struct attended_shape {
  int heads, kv_heads, dim;
  kv_type type;
  std::size_t columns() const { return static_cast<std::size_t>((heads + 2 * kv_heads) * dim); }
  std::size_t width() const { return static_cast<std::size_t>(heads * dim); }
};

/// A sequence of so many rows in a cache, whose block table is shuffled, and what rows of it attend to.
class attended_rows {
public:
  attended_rows(const attended_shape& s, int tokens, bool deterministic, std::optional<float> maximum = {})
    : device(make_device(deterministic, maximum)), s_(s), tokens_(tokens) {
    generator random(7);
    values = random.normal(static_cast<std::size_t>(tokens) * s.columns());
    const int blocks = tokens / block_tokens + 1;
    cache_ = device->make_kv_cache({1, s.kv_heads, s.dim, s.type, static_cast<std::size_t>(blocks)});
    table_.resize(static_cast<std::size_t>(blocks));
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), random.engine);
    qkv_.emplace(*device, wide(values), static_cast<std::size_t>(tokens));
    const sequence_rows all{0, tokens, 0, 0, tokens};
    device->rope_write_kv(qkv_->view, s.heads, {}, {}, *cache_, 0, {{&all, 1}, table_});
  }

  numbers attend(const attention_scores& how, int first, int rows) {
    const device_tensor out(*device, dtype::f32, static_cast<std::size_t>(rows), s_.width());
    auto from = qkv_->view;
    from.data = static_cast<float*>(from.data) + static_cast<std::size_t>(first) * s_.columns();
    from.rows = static_cast<std::size_t>(rows);
    const sequence_rows who{0, rows, first, 0, tokens_};
    device->shaped_attention(out.view, from, s_.heads, how, *cache_, 0, {{&who, 1}, table_});
    return out.read();
  }

  /// Checks a row of what all rows attend to. `sinks` and the like of `how` are in host memory.
  void check(const numbers& all, const attention_scores& how, int t, double tolerance, const std::string& what) const {
    int first = how.window > 0 ? std::max(0, t + 1 - how.window) : 0;
    if (how.chunk > 0)
      first = std::max(first, t / how.chunk * how.chunk);
    const int end = how.ahead == 0 ? t + 1 : std::min(tokens_, t + 1 + how.ahead);
    std::vector<double> want;
    for (int h = 0; h < s_.heads; ++h) {
      std::vector<std::vector<double>> keys, kept;
      const int kv = h / (s_.heads / s_.kv_heads);
      // The reference takes its query to be the last position; slopes are of the distance from it.
      for (int i = 0; i < end; ++i) {
        keys.push_back(head_at(i, s_.heads + kv));
        kept.push_back(head_at(i, s_.heads + s_.kv_heads + kv));
      }
      const auto o = reference::shaped_attention(head_at(t, h), keys, kept, static_cast<std::size_t>(first),
                                                 static_cast<std::size_t>(end), how, static_cast<std::size_t>(h));
      want.insert(want.end(), o.begin(), o.end());
    }
    check_close(all.slice(static_cast<std::size_t>(t) * s_.width(), s_.width()).values(), want,
                std::vector<double>(want.size(), tolerance), what + ", position " + std::to_string(t));
  }

  std::unique_ptr<cuda::cuda_backend> device;
  std::vector<float> values;

private:
  std::vector<double> head_at(int token, int head) const {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(token) * static_cast<std::ptrdiff_t>(s_.columns()) +
      head * s_.dim;
    return {first, first + s_.dim};
  }

  attended_shape s_;
  int tokens_;
  std::unique_ptr<kv_cache> cache_;
  std::vector<std::int32_t> table_;
  std::optional<device_tensor> qkv_;
};

} // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: layer_norm agrees with the reference, with and without bias, into f32 and bf16, for gathered rows") {
  const auto device = make_device();
  for (const std::size_t cols : {2, 7, 111, 989})
    for (const dtype type : compute_types)
      for (const bool biased : {false, true}) {
        generator random;
        auto values = random.normal(9 * cols, 3);
        for (auto& v : values)
          v += 2; // a mean that matters
        const numbers x(dtype::f32, values);
        const auto weight = random.normal(cols), bias = random.normal(cols);
        const device_tensor in(*device, x, 9), weights(*device, wide(weight), 1), biases(*device, wide(bias), 1);
        const std::int32_t rows[] = {8, 0, 7, 7, 2};
        const device_tensor all(*device, type, 9, cols), gathered(*device, type, 5, cols);
        const float* b = biased ? biases.floats() : nullptr;
        device->layer_norm(all.view, in.view, weights.floats(), b, 1e-5f);
        device->layer_norm(gathered.view, in.view, weights.floats(), b, 1e-5f, rows);
        const auto got = all.read();
        for (std::size_t i = 0; i < 5; ++i)
          CHECK(gathered.read().slice(i * cols, cols) == got.slice(static_cast<std::size_t>(rows[i]) * cols, cols));
        std::vector<double> want, tolerance;
        for (std::size_t r = 0; r < 9; ++r)
          for (const double v : reference::layer_norm(x.slice(r * cols, cols).values(), weight.data(),
                                                      biased ? bias.data() : nullptr, 1e-5f)) {
            want.push_back(v);
            const double absolute = cols < 8 ? 1e-3 : 8 * (std::sqrt(double(cols)) + 20) * unit(dtype::f32);
            tolerance.push_back((std::abs(v) + 1) * unit(type) + 4 * absolute);
          }
        check_close(got.values(), want, tolerance, std::to_string(cols));
      }
}

TEST_CASE("CUDA: activations are accurate over the whole range, alone and as gates") {
  using enum activation_type;
  const auto device = make_device();
  const float one = 1;
  const stored_matrix w{&one, dtype::f32, 1, 1};
  const auto plain = device->pack({&w, 1}, dtype::f32), pair = device->pack_gate_up(w, w, dtype::f32);
  std::vector<float> inputs;
  for (double x = -60; x <= 60; x += 0.171)
    inputs.push_back(static_cast<float>(x));
  const std::size_t rows = inputs.size();
  const device_tensor in(*device, wide(inputs), rows), out(*device, dtype::f32, rows, 1);
  for (const activation_type type : {none, silu, gelu, gelu_tanh, relu, relu_squared}) {
    std::vector<double> want, want_gated, tolerance, tolerance_gated;
    for (const float x : inputs) {
      want.push_back(reference::activated(type, x));
      tolerance.push_back(std::abs(want.back()) * 8 * unit(dtype::f32) + 4e-7 * (type == gelu || type == gelu_tanh));
      want_gated.push_back(reference::gated({type}, x, x));
      tolerance_gated.push_back(tolerance.back() * std::abs(x) + std::abs(want_gated.back()) * unit(dtype::f32));
    }
    const auto what = "activation " + std::to_string(static_cast<int>(type));
    device->linear_activated(out.view, in.view, *plain, {type}, false);
    check_close(out.read().values(), want, tolerance, what);
    device->linear_activated(out.view, in.view, *pair, {type}, true);
    check_close(out.read().values(), want_gated, tolerance_gated, what + " gated");
  }
  const activation curve{xielu, 0.9f, -1e-6f, 0.5f, 1.3f}, clamped{clamped_swiglu, 1.702f, 7},
    cut{cut_swiglu, 0.9f, 0.5f};
  std::vector<double> want, tolerance, want_gated, tolerance_gated;
  for (const float x : inputs) {
    want.push_back(x > 0 ? 0.9 * x * x + 0.5 * x : (std::expm1(std::min<double>(x, -1e-6)) - x) * 1.3 + 0.5 * x);
    tolerance.push_back(2e-6 + std::abs(want.back()) * 1e-6);
    want_gated.push_back(reference::gated(clamped, x, x));
    tolerance_gated.push_back(1e-6 + std::abs(want_gated.back()) * 20 * unit(dtype::f32));
  }
  device->linear_activated(out.view, in.view, *plain, curve, false);
  check_close(out.read().values(), want, tolerance, "xIELU");
  device->linear_activated(out.view, in.view, *pair, clamped, true);
  check_close(out.read().values(), want_gated, tolerance_gated, "clamped SwiGLU");
  for (std::size_t i = 0; i < want_gated.size(); ++i)
    want_gated[i] = reference::gated(cut, inputs[i], inputs[i]);
  device->linear_activated(out.view, in.view, *pair, cut, true);
  check_close(out.read().values(), want_gated, tolerance_gated, "cut SwiGLU");
}

TEST_CASE("CUDA: a layer without a gate has the bits of its activation in any number of rows, through every kernel") {
  const std::size_t inputs = 96, outputs = 70, most = 520;
  for (const auto& [how, deterministic, rows] : {std::tuple{quantization::none, true, std::size_t(33)},
                                                 {quantization::int8, true, std::size_t(9)},
                                                 {quantization::none, false, most},
                                                 {quantization::int4, false, most}}) {
    const auto device = make_device(deterministic);
    generator random;
    const numbers w(dtype::bf16, random.normal(outputs * inputs, 0.1f)), x(dtype::bf16, random.normal(rows * inputs));
    const stored_matrix stored{w.data(), dtype::bf16, outputs, inputs};
    const auto packed = device->pack({&stored, 1}, dtype::bf16, how);
    const device_tensor in(*device, x, rows), bias(*device, wide(random.normal(outputs)), 1),
      sums(*device, dtype::f32, rows, outputs), all(*device, dtype::bf16, rows, outputs),
      one(*device, dtype::bf16, 1, outputs);
    device->linear(sums.view, in.view, *packed, bias.floats());
    device->linear_activated(all.view, in.view, *packed, {activation_type::gelu_tanh}, false, bias.floats());
    std::vector<double> want, tolerance;
    for (const double s : sums.read().values()) {
      want.push_back(reference::activated(activation_type::gelu_tanh, s));
      tolerance.push_back(std::abs(want.back()) * unit(dtype::bf16) + 1e-6);
    }
    check_close(all.read().values(), want, tolerance, to_string(how));
    if (!deterministic)
      continue;
    for (const std::size_t r : {std::size_t(0), rows - 1}) {
      auto row = in.view;
      row.data = static_cast<std::uint16_t*>(row.data) + r * inputs;
      row.rows = 1;
      device->linear_activated(one.view, row, *packed, {activation_type::gelu_tanh}, false, bias.floats());
      CHECK(one.read() == all.read().slice(r * outputs, outputs));
    }
  }
}

TEST_CASE("CUDA: attention with capped scores, slopes and sinks agrees with the reference, and keeps its bits row by "
          "row if deterministic") {
  const int tokens = 270;
  for (const auto& s : {attended_shape{6, 2, 20, kv_type::f32}, {4, 2, 64, kv_type::bf16}, {2, 1, 96, kv_type::int8}})
    for (const int variant : {1, 2, 4, 7})
      for (const int window : {0, 37}) {
        if (window > 0 && variant != 7)
          continue; // slow in the emulation
        std::vector<float> slopes(static_cast<std::size_t>(s.heads)), sinks = generator(3).normal(slopes.size(), 2);
        for (int h = 0; h < s.heads; ++h)
          slopes[static_cast<std::size_t>(h)] = 0.3f / static_cast<float>(h + 1);
        const float scale = s.type == kv_type::f32 ? 0.7f : 1 / std::sqrt(static_cast<float>(s.dim));
        attention_scores how{scale, window};
        how.soft_cap = variant & 1 ? 3.0f : 0.0f;
        how.slopes = variant & 2 ? slopes.data() : nullptr;
        how.sinks = variant & 4 ? sinks.data() : nullptr;
        const double tolerance = s.type == kv_type::f32 ? 3e-5 : s.type == kv_type::bf16 ? 0.03 : 0.06;
        numbers first;
        for (const bool deterministic : {true, false}) {
          if (!deterministic && s.type == kv_type::f32)
            continue; // the same kernels
          attended_rows rows(s, tokens, deterministic);
          const device_tensor slopes_there(*rows.device, wide(slopes), 1), sinks_there(*rows.device, wide(sinks), 1);
          auto there = how;
          there.slopes = how.slopes != nullptr ? slopes_there.floats() : nullptr;
          there.sinks = how.sinks != nullptr ? sinks_there.floats() : nullptr;
          const auto what = to_string(s.type) + std::string(deterministic ? "" : ", one pass") + ", variant " +
            std::to_string(variant);
          const auto all = rows.attend(there, 0, tokens);
          for (const int t : {0, 36, 255, 256, 269})
            rows.check(all, how, t, tolerance, what);
          if (deterministic)
            for (const int t : {3, 269})
              CHECK(rows.attend(there, t, 1) == all.slice(static_cast<std::size_t>(t) * s.width(), s.width()));
        }
      }
}

TEST_CASE("CUDA: rows whose scores a unified maximum does not suit are capped, sloped and sunk as others") {
  const attended_shape s{2, 1, 64, kv_type::bf16};
  std::vector<float> slopes{0.02f, 0.01f}, sinks{1, -2};
  attention_scores how{0.125f, 0};
  how.soft_cap = 3;
  how.slopes = slopes.data();
  how.sinks = sinks.data();
  for (const float maximum : {0.0f, 500.0f}) { // 500 suits none
    attended_rows rows(s, 40, true, maximum);
    const device_tensor slopes_there(*rows.device, wide(slopes), 1), sinks_there(*rows.device, wide(sinks), 1);
    auto there = how;
    there.slopes = slopes_there.floats();
    there.sinks = sinks_there.floats();
    const auto all = rows.attend(there, 0, 40);
    for (const int t : {0, 39})
      rows.check(all, how, t, 0.03, "maximum " + std::to_string(maximum));
  }
}

TEST_CASE("CUDA: attention within chunks, and to what follows, agrees with the reference, and keeps its bits") {
  struct reach {
    int window, chunk, ahead;
  };
  const int tokens = 290;
  for (const auto& s : {attended_shape{2, 1, 20, kv_type::f32}, {4, 1, 32, kv_type::bf16}})
    for (const auto& seen : {reach{0, 37, 0}, reach{20, 256, 0}, reach{0, 0, all_ahead}, reach{9, 0, 8}}) {
      attention_scores how{s.type == kv_type::f32 ? 0.7f : 0.17f, seen.window};
      how.chunk = seen.chunk;
      how.ahead = seen.ahead;
      for (const bool deterministic : {true, false}) {
        if (!deterministic && s.type == kv_type::f32)
          continue;
        attended_rows rows(s, tokens, deterministic);
        const auto all = rows.attend(how, 0, tokens);
        const auto what = "window " + std::to_string(seen.window) + ", chunk " + std::to_string(seen.chunk) +
          ", ahead " + std::to_string(seen.ahead) + (deterministic ? "" : ", one pass");
        for (const int t : {0, 36, 37, 255, 256, 289})
          rows.check(all, how, t, s.type == kv_type::f32 ? 3e-5 : 0.03, what);
        if (deterministic)
          for (const int t : {37, 256, 289})
            CHECK(rows.attend(how, t, 1) == all.slice(static_cast<std::size_t>(t) * s.width(), s.width()));
      }
    }
}

TEST_CASE("CUDA: heads may be as wide as those of latent attention") {
  for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8}) {
    const attended_shape s{2, 1, 576, type};
    attended_rows rows(s, 20, true);
    attention_scores how{0.04f, 0};
    const auto all = rows.attend(how, 0, 20);
    for (const int t : {0, 19})
      rows.check(all, how, t, type == kv_type::f32 ? 3e-5 : type == kv_type::bf16 ? 0.03 : 0.2, to_string(type));
  }
  CHECK_THROWS_AS(make_device()->make_kv_cache({1, 1, 642, kv_type::bf16, 4}), std::invalid_argument);
}

TEST_CASE("CUDA: q and k may be normed behind the rotation, q alone leaves the cache as it is, and layers have caches "
          "of their own shapes") {
  const int heads = 2, dim = 8;
  const auto device = make_device();
  generator random(5);
  kv_shape shape{2, 2, dim, kv_type::f32, 3};
  shape.own = {{2, dim}, {1, 4}};
  const auto cache = device->make_kv_cache(shape);
  const std::int32_t blocks[] = {1};
  const sequence_rows one{0, 1, 3, 0, 4};
  std::vector<float> table(4 * dim, 0.6f);
  std::fill_n(table.begin() + 3 * dim + dim / 2, dim / 2, 0.8f);
  const device_tensor rope(*device, wide(table), 1);
  const auto weights = random.normal(dim), original = random.normal((heads + 4) * dim);
  const device_tensor norm(*device, wide(weights), 1);
  const auto rotated = [&](const std::vector<float>& row) {
    std::vector<double> x(row.begin(), row.begin() + dim);
    return reference::rotate(x, table.data() + 3 * dim);
  };
  const auto image = [&](std::int32_t block) {
    std::vector<float> host(shape.block_bytes() / sizeof(float));
    const block_export out[] = {{block, host.data()}};
    device->export_blocks(*cache, out);
    return host;
  };
  const device_tensor row(*device, wide(original), 1);
  device->rope_write_kv(row.view, heads, {norm.floats(), norm.floats(), 1e-6f, true}, rope.floats(), *cache, 0,
                        {{&one, 1}, blocks});
  auto want = rotated(original);
  const auto normed = reference::rms_norm(want, weights.data(), 1e-6);
  for (std::size_t i = 0; i < dim; ++i)
    CHECK(row.read()[i] == doctest::Approx(normed[i]).epsilon(1e-5));
  const auto before = image(1);
  const device_tensor queries(*device, wide({original.begin(), original.begin() + heads * dim}), 1);
  device->rope_write_kv(queries.view, heads, {}, rope.floats(), *cache, 0, {{&one, 1}, blocks});
  CHECK(image(1) == before);
  for (std::size_t i = 0; i < dim; ++i)
    CHECK(queries.read()[i] == doctest::Approx(want[i]).epsilon(1e-6));

  // The other layer: one narrow head.
  const auto narrow = random.normal(4 * 4);
  const device_tensor other(*device, wide(narrow), 1);
  device->rope_write_kv(other.view, heads, {}, {}, *cache, 1, {{&one, 1}, blocks});
  const auto after = image(1);
  const auto offset = 16 * 2 * 2 * 8;
  CHECK(std::equal(before.begin(), before.begin() + offset, after.begin()));
  CHECK(after[static_cast<std::size_t>(offset) + 3 * 4] == narrow[8]);       // K of position 3
  CHECK(after[static_cast<std::size_t>(offset) + 16 * 4 + 3] == narrow[12]); // V, transposed
  const block_copy copies[] = {{1, 2}};
  device->copy_blocks(*cache, copies);
  CHECK(image(2) == after);
  const block_import in[] = {{after.data(), 0}};
  device->import_blocks(*cache, in);
  CHECK(image(0) == after);
}

TEST_CASE("CUDA: rows are clipped; NaN stays") {
  const auto device = make_device();
  generator random;
  const std::size_t rows = 3, cols = 1053;
  auto values = random.normal(rows * cols, 4);
  values[7] = NAN;
  const device_tensor x(*device, wide(values), rows);
  device->clamp(x.view, 1.5f);
  const auto got = x.read();
  CHECK(std::isnan(got.wide[7]));
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i != 7 && got.wide[i] != std::clamp(values[i], -1.5f, 1.5f))
      REQUIRE(got.wide[i] == std::clamp(values[i], -1.5f, 1.5f));
}

TEST_CASE("CUDA: rows are scaled, capped, added, multiplied and copied; a factor of 0 clears even NaN") {
  const auto device = make_device();
  generator random;
  const std::size_t rows = 11, cols = 1053; // more than a block's columns
  const auto values = random.normal(rows * cols, 4), others = random.normal(3 * cols);
  const device_tensor x(*device, wide(values), rows);
  device->scale(x.view, 0.5f, 2);
  std::vector<double> want;
  for (const float v : values)
    want.push_back(2 * std::tanh(0.5 * v / 2));
  check_close(x.read().values(), want, std::vector<double>(want.size(), 1e-6), "capped");

  const device_tensor sums(*device, wide(values), rows), added(*device, wide(others), 3);
  const std::int32_t to[] = {10, 0, 4};
  const float factors[] = {1, -2, 0.25f};
  device->add_rows(sums.view, added.view, 0.5f, to, factors);
  const auto summed = sums.read();
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < cols; ++c) {
      float expected = values[r * cols + c];
      for (std::size_t i = 0; i < 3; ++i)
        if (static_cast<std::size_t>(to[i]) == r)
          expected += others[i * cols + c] * (0.5f * factors[i]);
      if (summed.wide[r * cols + c] != expected)
        REQUIRE(summed.wide[r * cols + c] == doctest::Approx(expected).epsilon(1e-6));
    }

  const device_tensor narrow(*device, dtype::bf16, 3, cols), again(*device, dtype::bf16, 1, cols);
  device->gather_rows(narrow.view, sums.view, to);
  const numbers row(dtype::bf16, summed.slice(0, cols).wide);
  CHECK(narrow.read().slice(cols, cols) == row);
  const std::int32_t second[] = {1};
  device->gather_rows(again.view, narrow.view, second);
  CHECK(again.read() == row);
  device->multiply_rows(again.view,
                        added.view.rows == 3 ? tensor{added.view.data, dtype::f32, 1, cols, cols} : added.view);
  for (std::size_t c = 0; c < cols; ++c)
    REQUIRE(again.read()[c] == numbers(dtype::bf16, std::vector<float>{static_cast<float>(row[c]) * others[c]})[0]);

  const device_tensor bad(*device, dtype::f32, 1, cols);
  device->scale(bad.view, 0);
  CHECK(bad.read().values() == std::vector<double>(cols, 0));

  const numbers stored(dtype::f16, random.normal(5 * cols));
  const auto table = device->load_table({stored.data(), dtype::f16, 5, cols});
  const device_tensor positioned(*device, wide(others), 3);
  const std::int32_t positions[] = {4, 4, 1};
  device->embed_add(positioned.view, *table, positions);
  const auto got = positioned.read();
  for (std::size_t i = 0; i < 3 * cols; ++i)
    REQUIRE(got.wide[i] ==
            others[i] + static_cast<float>(stored[static_cast<std::size_t>(positions[i / cols]) * cols + i % cols]));
}

TEST_CASE("CUDA: gates above a row's mean by so many deviations count, and rows have mean squares") {
  const auto device = make_device();
  auto& gates = dynamic_cast<gaussian_gates&>(*device);
  generator random(5);
  const std::size_t rows = 5;
  for (const std::size_t cols : {1, 7, 300})
    for (const float deviations : {-0.5f, 0.0f, 1.6448536f})
      for (const dtype type : compute_types) {
        const auto both = random.normal(rows * 2 * cols); // [gate | up]
        const device_tensor in(*device, wide(both), rows), out(*device, type, rows, cols);
        const tensor gate{in.view.data, dtype::f32, rows, cols, 2 * cols},
          up{static_cast<float*>(in.view.data) + cols, dtype::f32, rows, cols, 2 * cols};
        std::vector<float> squares(rows);
        gates.mean_squares(squares.data(), gate);
        gates.gate_gaussian(out.view, gate, up, deviations);
        std::vector<double> want, tolerance;
        for (std::size_t r = 0; r < rows; ++r) {
          const float* g = &both[r * 2 * cols];
          double mean = 0, square = 0, variance = 0;
          for (std::size_t i = 0; i < cols; ++i) {
            mean += g[i] / double(cols);
            square += double(g[i]) * g[i] / double(cols);
          }
          for (std::size_t i = 0; i < cols; ++i)
            variance += (g[i] - mean) * (g[i] - mean) / double(cols);
          CHECK(std::abs(squares[r] - square) < 1e-5 * (1 + square));
          for (std::size_t i = 0; i < cols; ++i) {
            const double x = std::max(g[i] - mean - deviations * std::sqrt(variance), 0.0);
            want.push_back(x / 2 * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x))) * g[cols + i]);
            tolerance.push_back(1e-5 + std::abs(want.back()) * unit(type));
          }
        }
        check_close(out.read().values(), want, tolerance, "gates of " + std::to_string(cols));
      }
}

TEST_CASE("CUDA: mixtures of experts agree with the reference, and a row has the bits that it has alone") {
  const std::size_t hidden = 48, ffn = 40, rows = 7, count = 4;
  const activation silu{activation_type::silu};
  for (const dtype type : compute_types) {
    const auto device = make_device(true);
    generator random(11);
    const numbers x(type, random.normal(rows * hidden));
    std::vector<numbers> stored;
    std::vector<reference::expert> experts(count);
    std::vector<std::unique_ptr<matrix>> up, down;
    std::vector<device_tensor> biases;
    std::vector<std::vector<float>> host_biases;
    for (std::size_t e = 0; e < count; ++e) {
      for (const std::size_t n : {ffn * hidden, ffn * hidden, hidden * ffn})
        stored.emplace_back(type, random.normal(n, 0.2f));
      host_biases.push_back(random.normal(2 * ffn));
      host_biases.push_back(random.normal(hidden));
    }
    for (std::size_t e = 0; e < count; ++e) {
      auto& one = experts[e];
      one.gate = {stored[3 * e].data(), type, ffn, hidden};
      one.up = {stored[3 * e + 1].data(), type, ffn, hidden};
      one.down = {stored[3 * e + 2].data(), type, hidden, ffn};
      one.up_bias = host_biases[2 * e].data();
      one.down_bias = host_biases[2 * e + 1].data();
      for (std::size_t r = 0; r < rows; ++r)
        if (e == 2 || (r + e) % 3 == 0) { // expert 2 has all
          one.rows.push_back(static_cast<std::int32_t>(r));
          one.factors.push_back(0.25f * static_cast<float>(r + e + 1));
        }
      up.push_back(device->pack_gate_up(one.gate, one.up, type));
      down.push_back(device->pack({&one.down, 1}, type));
      biases.emplace_back(*device, wide(host_biases[2 * e]), 1);
      biases.emplace_back(*device, wide(host_biases[2 * e + 1]), 1);
    }
    const device_tensor in(*device, x, rows);
    /// Of some rows, which are `from` of the input.
    const auto mixed = [&](std::span<const std::int32_t> from) {
      const device_tensor own(*device, type, from.size(), hidden), to(*device, dtype::f32, from.size(), hidden);
      device->gather_rows(own.view, in.view, from.data());
      std::vector<std::vector<std::int32_t>> places(count);
      std::vector<std::vector<float>> factors(count);
      std::vector<row_group> first, second;
      std::size_t all = 0;
      for (std::size_t e = 0; e < count; ++e) {
        for (std::size_t i = 0; i < experts[e].rows.size(); ++i)
          if (const auto at = std::find(from.begin(), from.end(), experts[e].rows[i]); at != from.end()) {
            places[e].push_back(static_cast<std::int32_t>(at - from.begin()));
            factors[e].push_back(experts[e].factors[i]);
          }
        all += places[e].size();
        first.push_back({up[e].get(), biases[2 * e].floats(), places[e]});
        second.push_back({down[e].get(), biases[2 * e + 1].floats(), places[e], factors[e]});
      }
      const device_tensor between(*device, type, all, ffn);
      device->grouped_activated(between.view, own.view, first, silu, true);
      device->grouped_sum(to.view, between.view, second);
      return to.read();
    };
    std::vector<std::int32_t> every(rows);
    std::iota(every.begin(), every.end(), 0);
    const auto got = mixed(every);
    const auto want = reference::mixture(x.values(), rows, experts, silu);
    double largest = 0;
    for (const double v : want)
      largest = std::max(largest, std::abs(v));
    check_close(got.values(), want,
                std::vector<double>(want.size(), largest * (type == dtype::f32 ? 1e-5 : 2 * unit(type))), "mixture");
    for (const std::int32_t r : {0, 5})
      CHECK(mixed({&r, 1}) == got.slice(static_cast<std::size_t>(r) * hidden, hidden));
  }
}

TEST_SUITE_END();
