// Hyper-connections: residual streams that are mixed for what reads them, beside the published formulas in double.
#include "runtime/model/decoder/decoder_hyper.hpp"

#include "tests/runtime/model/decoder_checks.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

using numbers = std::vector<float>;
using exact = std::vector<double>;

constexpr std::size_t hidden = 6;

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

numbers random_numbers(std::mt19937& random, std::size_t count, float scale) {
  std::normal_distribution<float> normal(0, scale);
  numbers values(count);
  std::ranges::generate(values, [&] { return normal(random); });
  return values;
}

/// What a read makes of one row's streams: what is read, how it is written, and what streams keep of each other.
struct expected_mix {
  exact read, write, keep;
};

exact product(const numbers& w, const exact& x) {
  exact result(w.size() / x.size());
  for (std::size_t i = 0; i < w.size(); ++i)
    result[i / x.size()] += double(w[i]) * x[i % x.size()];
  return result;
}

exact normed(const exact& x, std::size_t group, double eps) {
  auto result = x;
  for (std::size_t first = 0; first < x.size(); first += group) {
    double sum = 0;
    for (std::size_t i = first; i < first + group; ++i)
      sum += x[i] * x[i];
    for (std::size_t i = first; i < first + group; ++i)
      result[i] = x[i] / std::sqrt(sum / double(group) + eps);
  }
  return result;
}

/// The weights of one mix in host memory, and as the decoder has them.
struct mixer {
  numbers matrix, base, scale, down, up, norm;
  hyper_weights packed;

  expected_mix mix(const hyper_config& config, double norm_eps, const exact& streams) const {
    const auto n = as_size(config.streams);
    expected_mix to{exact(hidden), exact(n), exact(n * n)};
    if (config.rank > 0) {
      auto in = normed(streams, hidden, norm_eps);
      for (std::size_t i = 0; i < in.size(); ++i)
        in[i] *= norm[i];
      auto low = product(down, in);
      for (double& x : low)
        x = x / double(n) * logistic(x / double(n));
      const auto weights = product(up, low), written = product(matrix, in);
      for (std::size_t i = 0; i < in.size(); ++i)
        to.read[i % hidden] += logistic(weights[i]) * in[i] / double(n);
      for (std::size_t k = 0; k < written.size(); ++k)
        to.write[k] = 2 * logistic(written[k] / double(n));
      for (std::size_t k = 0; k < n; ++k)
        to.keep[k * n + k] = 1;
      return to;
    }
    const double eps = double(config.eps);
    const auto made = product(matrix, normed(streams, streams.size(), norm_eps));
    for (std::size_t i = 0; i < streams.size(); ++i)
      to.read[i % hidden] += (logistic(made[i / hidden] * scale[0] + base[i / hidden]) + eps) * streams[i];
    if (made.size() == n)
      return to;
    for (std::size_t k = 0; k < n; ++k)
      to.write[k] = double(config.magnitude) * logistic(made[n + k] * scale[1] + base[n + k]);
    if (config.passes == 0) { // streams stay as they are
      for (std::size_t k = 0; k < n; ++k) {
        to.write[k] += eps;
        to.keep[k * n + k] = 1;
      }
      return to;
    }
    auto& keep = to.keep;
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < n; ++k)
        sum += keep[j * n + k] = std::exp(made[(2 + j) * n + k] * scale[2] + base[(2 + j) * n + k]);
      for (std::size_t k = 0; k < n; ++k)
        keep[j * n + k] = keep[j * n + k] / sum + eps;
    }
    for (int pass = 0; pass < 2 * config.passes - 1; ++pass) // columns, then rows and columns in turn
      for (std::size_t line = 0; line < n; ++line) {
        const auto at = [&](std::size_t i) { return pass % 2 == 0 ? i * n + line : line * n + i; };
        double sum = eps;
        for (std::size_t i = 0; i < n; ++i)
          sum += keep[at(i)];
        for (std::size_t i = 0; i < n; ++i)
          keep[at(i)] /= sum;
      }
    return to;
  }
};

mixer make_mixer(std::mt19937& random, const hyper_config& config, kernels::backend& on, bool written) {
  const auto n = as_size(config.streams), width = n * hidden, rank = as_size(config.rank);
  const auto pack = [&](const numbers& values, std::size_t cols) -> std::unique_ptr<const kernels::matrix> {
    if (values.empty())
      return nullptr;
    const kernels::stored_matrix stored{values.data(), dtype::f32, values.size() / cols, cols};
    return on.pack({&stored, 1}, dtype::f32);
  };
  mixer made;
  if (rank > 0) {
    made.norm = random_numbers(random, width, 1);
    made.down = random_numbers(random, rank * width, 1);
    made.up = random_numbers(random, width * rank, 1);
    made.matrix = random_numbers(random, written ? n * width : 0, 1);
    made.packed.norm = on.upload(made.norm);
  } else {
    const std::size_t kinds = !written ? 1
      : config.passes > 0              ? 3
                                       : 2,
                      weights = !written ? n : (kinds == 3 ? 2 + n : 2) * n;
    made.matrix = random_numbers(random, weights * width, 0.3f);
    made.base = random_numbers(random, weights, 1);
    made.scale = random_numbers(random, kinds, 1);
    made.packed.base = made.base;
    made.packed.scale = made.scale;
  }
  made.packed.mix = pack(made.matrix, width);
  made.packed.down = pack(made.down, width);
  made.packed.up = pack(made.up, rank);
  return made;
}

model_config config_with(const hyper_config& hyper) {
  model_config config;
  config.vocab = 8;
  config.hidden = hidden;
  config.layers = config.heads = config.kv_heads = 1;
  config.head_dim = 2;
  config.ffn = 4;
  config.windows = {0};
  config.hyper = hyper;
  return config;
}

/// Spreads `embedded`, reads, writes `given`, and merges; returns what was read and what was merged, row by row.
std::pair<numbers, numbers> computed(const hyper_config& hyper, const mixer& layer, mixer& head,
                                     kernels::backend& backend, const numbers& embedded, const numbers& given) {
  const auto weights = std::make_shared<model_weights>();
  weights->config = config_with(hyper);
  weights->layers.resize(1);
  weights->hyper_head = std::make_unique<const hyper_weights>(std::move(head.packed));
  const auto rows = embedded.size() / hidden;
  decoder_step step(weights, backend, static_cast<int>(rows) + 3, 4);
  decoder_hyper streams(step);
  step.begin(rows);
  const auto first = backend.upload(embedded);
  backend.gather_rows(step.residual(), {first.get(), dtype::f32, rows, hidden, hidden});
  std::pair<numbers, numbers> result{numbers(embedded.size()), numbers(embedded.size())};
  streams.spread();
  for (int times = 0; times < 2; ++times) { // behind the first, streams differ
    streams.read(layer.packed);
    backend.download(result.first.data(), step.residual());
    streams.clear();
    const auto memory = backend.upload(given);
    backend.add_rows(step.residual(), {memory.get(), dtype::f32, rows, hidden, hidden}, 1);
    streams.write();
  }
  streams.merge();
  backend.download(result.second.data(), step.residual());
  head.packed = {};
  return result;
}

std::pair<exact, exact> expected(const hyper_config& hyper, const mixer& layer, const mixer& head,
                                 const numbers& embedded, const numbers& given) {
  const auto n = as_size(hyper.streams);
  const double eps = double(model_config().norm_eps);
  std::pair<exact, exact> result;
  for (std::size_t row = 0; row < embedded.size(); row += hidden) {
    exact streams(n * hidden);
    for (std::size_t i = 0; i < streams.size(); ++i)
      streams[i] = embedded[row + i % hidden];
    expected_mix mix;
    for (int times = 0; times < 2; ++times) {
      mix = layer.mix(hyper, eps, streams);
      exact next(streams.size());
      for (std::size_t i = 0; i < streams.size(); ++i) {
        next[i] = mix.write[i / hidden] * given[row + i % hidden];
        for (std::size_t j = 0; j < n; ++j)
          next[i] += mix.keep[j * n + i / hidden] * streams[j * hidden + i % hidden];
      }
      streams = next;
    }
    result.first.insert(result.first.end(), mix.read.begin(), mix.read.end());
    const auto merged = head.mix(hyper, eps, streams).read;
    result.second.insert(result.second.end(), merged.begin(), merged.end());
  }
  return result;
}

double worst(const numbers& got, const exact& wanted) {
  double most = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    most = std::max(most, std::abs(got[i] - wanted[i]));
  return most;
}

const std::vector<hyper_config> kinds{{.streams = 2, .passes = 20},
                                      {.streams = 3, .passes = 1},
                                      {.streams = 4, .passes = 7, .eps = 1e-3f},
                                      {.streams = 4, .eps = 1e-3f, .magnitude = 1.5f},
                                      {.streams = 2, .rank = 5},
                                      {.streams = 3, .rank = 2}};

} // namespace

TEST_CASE("Hyper-connections: what is read, kept and written is what the formulas say") {
  std::mt19937 random(5);
  const auto backend = kernels::make_cpu_backend({2, targets().back()});
  for (const auto& hyper : kinds) {
    CAPTURE(hyper.streams);
    CAPTURE(hyper.rank);
    const auto layer = make_mixer(random, hyper, *backend, true);
    auto head = make_mixer(random, hyper, *backend, false);
    const auto embedded = random_numbers(random, 5 * hidden, 1), given = random_numbers(random, 5 * hidden, 1);
    const auto want = expected(hyper, layer, head, embedded, given);
    const auto got = computed(hyper, layer, head, *backend, embedded, given);
    CHECK(worst(got.first, want.first) < 1e-5);
    CHECK(worst(got.second, want.second) < 1e-5);
  }
}

TEST_CASE("Hyper-connections: a row's bits do not depend on the rows beside it") {
  for (const auto& hyper : kinds) {
    CAPTURE(hyper.streams);
    CAPTURE(hyper.rank);
    std::mt19937 random(6);
    const auto embedded = random_numbers(random, 7 * hidden, 1), given = random_numbers(random, 7 * hidden, 1);
    const auto merged = [&](std::size_t first, std::size_t rows, int threads) {
      std::mt19937 same(9);
      const auto backend = kernels::make_cpu_backend({threads, targets().back()});
      const auto layer = make_mixer(same, hyper, *backend, true);
      auto head = make_mixer(same, hyper, *backend, false);
      const auto part = [&](const numbers& of) {
        const auto from = of.begin() + static_cast<std::ptrdiff_t>(first * hidden);
        return numbers(from, from + static_cast<std::ptrdiff_t>(rows * hidden));
      };
      return computed(hyper, layer, head, *backend, part(embedded), part(given)).second;
    };
    const auto all = merged(0, 7, 3);
    for (std::size_t row = 0; row < 7; ++row) {
      const auto alone = merged(row, 1, 1);
      CHECK(std::memcmp(alone.data(), all.data() + row * hidden, hidden * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("Hyper-connections: the matrix that mixes streams has rows and columns that sum to 1") {
  std::mt19937 random(8);
  for (const std::size_t n : {2, 3, 4, 8}) {
    hyper_weights w;
    w.base = random_numbers(random, (2 + n) * n, 1);
    w.scale = {1, 1, 1.5f};
    const hyper_config config{.streams = static_cast<int>(n), .passes = 40};
    const auto mix = mix_streams(config, random_numbers(random, (2 + n) * n, 1), w);
    REQUIRE(mix.keep.size() == n * n);
    for (std::size_t line = 0; line < n; ++line) {
      double row = 0, column = 0;
      for (std::size_t i = 0; i < n; ++i) {
        row += double(mix.keep[line * n + i]);
        column += double(mix.keep[i * n + line]);
      }
      CHECK(std::abs(row - 1) < 1e-4);
      CHECK(std::abs(column - 1) < 1e-4);
    }
  }
}
