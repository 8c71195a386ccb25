// Packed weights as bytes: they change only with packed_layout_version, and suffice to restore a matrix.
#include "kernels/cpu/packed_matrix.hpp"
#include "kernels/formats/pruned_weights.hpp"
#include "tests/kernels/support.hpp"

#include <map>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

/// Weights that are the same with every standard library: random codes, or numbers that all types represent.
struct fixed_weights {
  weight_format format;
  std::size_t rows, cols;
  std::vector<char> bytes;

  fixed_weights(weight_format format, std::size_t rows, std::size_t cols, unsigned seed = 1)
    : format(format), rows(rows), cols(cols), bytes(rows * row_bytes(format, cols)) {
    std::mt19937 random(seed);
    const auto number = [&] { return (static_cast<float>(random() % 255) - 127) / 1024; };
    if (!is_float(format)) {
      for (auto& byte : bytes)
        byte = static_cast<char>(random());
      make_scales_moderate();
      return;
    }
    std::vector<float> wide(rows * cols);
    std::generate(wide.begin(), wide.end(), number);
    const numbers stored(dtype_of(format), wide);
    std::memcpy(bytes.data(), stored.data(), bytes.size());
  }

  stored_matrix view() const { return {bytes.data(), format, rows, cols}; }

private:
  void make_scales_moderate() {
    const auto set = [&](std::size_t at, const auto& value) { std::memcpy(&bytes[at], &value, sizeof value); };
    if (is_fp8(format)) {
      for (std::size_t at = 0; at < bytes.size(); at += row_bytes(format, cols))
        for (std::size_t i = 0; i < cols; ++i) {
          set(at + fp8_scale_offset(format, i), 0.01f);
          bytes[at + fp8_offset(format, i)] &= ~1; // no NaN
        }
      return;
    }
    if (is_pruned(format)) {
      const std::vector<char> random(std::exchange(bytes, std::vector<char>(bytes.size())));
      for (std::size_t four = 0; four < rows * cols / 4; ++four) {
        const auto byte = [&](std::size_t i) {
          return static_cast<unsigned char>(random[(3 * four + i) % random.size()]);
        };
        const int first = byte(0) % 3, second = first + 1 + byte(1) % (3 - first);
        store_pruned_pair(format, &bytes[four / (cols / 4) * row_bytes(format, cols)], four % (cols / 4),
                          {float(byte(2)) / 1024, float(byte(1) + 1) / -1024, first, second});
      }
      return;
    }
    std::uint16_t scale = 0x1c00;
    for (std::size_t at = 0; at < bytes.size(); at += block_bytes(format)) {
      set_exponent(format, reinterpret_cast<std::uint8_t*>(&bytes[at]));
      for (const std::size_t offset : f16_offsets(format))
        set(at + offset, ++scale);
      scale = static_cast<std::uint16_t>(0x1c00 + scale % 1024);
    }
  }
};

struct packing {
  std::string name;
  std::vector<weight_format> formats; // of the matrices that are packed together
  quantization how = quantization::none;
  dtype compute = dtype::f32;
  bool gated = false;
};

/// A case for every kind of packed weights, and for every way to combine them.
const std::vector<packing> packings = [] {
  using enum weight_format;
  constexpr auto none = quantization::none, int8 = quantization::int8, int4 = quantization::int4;
  constexpr auto to_fp8 = quantization::fp8;
  std::vector<packing> all{
    {"f32 f32", {f32}},
    {"f16 f32", {f16}},
    {"bf16 f32", {bf16}},
    {"f16 bf16", {f16}, none, dtype::bf16},
    {"f32 bf16", {f32}, none, dtype::bf16},
    {"bf16 bf16", {bf16}, none, dtype::bf16},
    {"fp8 f32", {fp8}},
    {"fp8 bf16", {fp8}, none, dtype::bf16},
    {"f32 fp8", {f32}, to_fp8},
    {"f16 fp8 bf16", {f16}, to_fp8, dtype::bf16},
    {"fp8 gated", {fp8, fp8}, none, dtype::bf16, true},
    {"fp8 bf16 gated", {fp8, bf16}, none, dtype::bf16, true},
    {"fp8 bf16 gated to fp8", {fp8, bf16}, to_fp8, dtype::bf16, true},
    {"fp8 fp8 bf16", {fp8, fp8, bf16}, none, dtype::bf16},
    {"fp8 128 f32", {fp8_128}},
    {"fp8 128 bf16", {fp8_128}, none, dtype::bf16},
    {"fp8 32 bf16", {fp8_32}, none, dtype::bf16},
    {"fp8 128 fp8 gated", {fp8_128, fp8}, none, dtype::bf16, true},
    {"fp8 128 fp8 fp8 32", {fp8_128, fp8, fp8_32}, none, dtype::bf16},
    {"f32 int8", {f32}, int8},
    {"f16 int4", {f16}, int4},
    {"fp8 int8", {fp8}, int8},
    {"bf16 gated", {bf16, bf16}, none, dtype::bf16, true},
    {"f32 int8 gated", {f32, f32}, int8, dtype::f32, true},
    {"q4_k gated", {q4_k, q4_k}, none, dtype::bf16, true},
    {"q8_0 f16 gated", {q8_0, f16}, none, dtype::f32, true},
    {"q8_0 three", {q8_0, q8_0, q8_0}},
    {"q4_k q4_k q6_k", {q4_k, q4_k, q6_k}},
    {"q8_0 f32 q5_1", {q8_0, f32, q5_1}, none, dtype::bf16},
    {"f32 2:4", {f32_24}},
    {"f16 2:4", {f16_24}},
    {"bf16 2:4", {bf16_24}},
    {"bf16 2:4 bf16", {bf16_24}, none, dtype::bf16},
    {"bf16 2:4 gated", {bf16_24, bf16_24}, none, dtype::bf16, true},
  };
  for (const auto& traits : weight_formats)
    if (has_groups(traits.format))
      all.push_back({traits.name, {traits.format}});
  return all;
}();

constexpr std::size_t outputs = 70, inputs = 512;

struct packed {
  std::vector<fixed_weights> weights;
  std::vector<stored_matrix> views;
  std::unique_ptr<matrix> result;

  packed(backend& device, const packing& p) {
    for (const auto format : p.formats)
      weights.emplace_back(format, outputs, inputs, static_cast<unsigned>(weights.size() + 1));
    for (const auto& w : weights)
      views.push_back(w.view());
    result = p.gated ? device.pack_gate_up(views[0], views[1], p.compute, p.how) : device.pack(views, p.compute, p.how);
  }

  /// The same matrices without data, as in plans.
  std::vector<stored_matrix> without_data() const {
    auto shapes = views;
    for (auto& s : shapes)
      s.data = nullptr;
    return shapes;
  }
};

const storable_matrices& storable(const backend& device) { return *device.storable(); }

std::vector<std::byte> joined(const std::vector<std::span<const std::byte>>& parts) {
  std::vector<std::byte> all;
  for (const auto& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

bool in_halves(weight_kind kind) { return kind == weight_kind::bf16_halves; }

/// Whether a part of it `is` so.
bool has(const matrix& packed, bool (*is)(weight_kind)) {
  if (const auto* one = dynamic_cast<const packed_matrix*>(&packed))
    return is(one->kind);
  const auto& parts = dynamic_cast<const matrix_stack&>(packed).parts;
  return std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return is(part->kind); });
}

/// FNV-1a, 32 bits.
std::uint32_t checksum(const std::vector<std::byte>& bytes) {
  std::uint32_t value = 0x811c9dc5;
  for (const auto b : bytes)
    value = (value ^ std::to_integer<std::uint32_t>(b)) * 0x01000193;
  return value;
}

/// Read-only memory with an inaccessible page behind it.
buffer read_only(const std::vector<std::byte>& bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto used = (bytes.size() + page - 1) / page * page;
  void* memory = mmap(nullptr, used + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* end = static_cast<char*>(memory) + used;
  std::memcpy(end - bytes.size(), bytes.data(), bytes.size());
  REQUIRE(mprotect(memory, used, PROT_READ) == 0);
  REQUIRE(mprotect(end, page, PROT_NONE) == 0);
  return {end - bytes.size(), [memory, used, page](void*) { munmap(memory, used + page); }};
}

numbers multiplied(backend& device, const matrix& weights, const packing& p, std::size_t rows) {
  generator random;
  numbers in(p.compute, random.normal(rows * inputs));
  if (p.gated) {
    numbers out(p.compute, rows * outputs);
    device.linear_silu_gate(out.rows(rows), in.rows(rows), weights);
    return out;
  }
  numbers out(dtype::f32, rows * weights.outputs);
  device.linear(out.rows(rows), in.rows(rows), weights);
  return out;
}

} // namespace

TEST_CASE("Packed weights have the bytes of packed_layout_version") {
  // After an intended change of layout, raise packed_layout_version here and there and copy the printed checksums.
  // Otherwise cached files of packed weights would be used with kernels that read another layout.
  CHECK(packed_layout_version == 5);
  const std::map<std::string, std::uint32_t> known{
    {"bf16 2:4 bf16", 1858570968},
    {"bf16 2:4 bf16, pairs", 3729262673},
    {"bf16 2:4 gated", 2392703242},
    {"bf16 2:4 gated, pairs", 2935055329},
    {"bf16 2:4", 1858570968},
    {"f16 2:4", 2111586562},
    {"f32 2:4", 2960139048},
    {"bf16 bf16, halves", 863415126},
    {"bf16 bf16", 1208265998},
    {"bf16 bf16, pairs", 3468133902},
    {"bf16 f32, halves", 863415126},
    {"bf16 f32", 1208265998},
    {"bf16 gated, halves", 938538209},
    {"bf16 gated", 1091679917},
    {"bf16 gated, pairs", 2134829501},
    {"f16 bf16", 1707664082},
    {"f16 f32", 1707664082},
    {"f16 int4", 3783235446},
    {"f32 bf16, halves", 863415126},
    {"f32 bf16", 1208265998},
    {"f32 bf16, pairs", 3468133902},
    {"f32 f32", 4174894198},
    {"f32 int8 gated", 3379265507},
    {"f32 int8", 3971522255},
    {"f16 fp8 bf16", 1630135616},
    {"f16 fp8 bf16, pairs", 3869070},
    {"f32 fp8", 1630135616},
    {"fp8 bf16", 1507275639},
    {"fp8 bf16, pairs", 1337558159},
    {"fp8 bf16 gated, halves", 3482100068},
    {"fp8 bf16 gated", 3054670260},
    {"fp8 bf16 gated, pairs", 963863196},
    {"fp8 bf16 gated to fp8", 997762035},
    {"fp8 bf16 gated to fp8, pairs", 1029309359},
    {"fp8 128 bf16", 845853955},
    {"fp8 128 bf16, pairs", 1295082443},
    {"fp8 128 f32", 845853955},
    {"fp8 128 fp8 fp8 32", 919884737},
    {"fp8 128 fp8 fp8 32, pairs", 2885376169},
    {"fp8 128 fp8 gated", 3166444753},
    {"fp8 128 fp8 gated, pairs", 1364327625},
    {"fp8 32 bf16", 3102627115},
    {"fp8 32 bf16, pairs", 2118591347},
    {"fp8 f32", 1507275639},
    {"fp8 fp8 bf16, halves", 2945380766},
    {"fp8 fp8 bf16", 4166179342},
    {"fp8 fp8 bf16, pairs", 2741891586},
    {"fp8 gated", 2736151117},
    {"fp8 gated, pairs", 2197490981},
    {"fp8 int8", 1156858687},
    {"iq1_m", 3400653564},
    {"iq1_s", 691847677},
    {"iq2_s", 2473369521},
    {"iq2_xs", 2040792162},
    {"iq2_xxs", 1336928932},
    {"iq3_s", 2057702567},
    {"iq3_xxs", 1668529580},
    {"iq4_nl", 1690917001}, // as q4_0
    {"iq4_xs", 950531293},
    {"mxfp4", 1897299503},
    {"nvfp4", 1608371179},
    {"q1_0", 3334419872},
    {"q2_k", 797181693},
    {"q3_k", 1101239751},
    {"q4_0", 1690917001},
    {"q4_1", 2258236422},
    {"q4_k gated", 1123254900},
    {"q4_k q4_k q6_k", 3576730398},
    {"q4_k", 1682321640},
    {"q5_0", 3460040477},
    {"q5_1", 3087746828},
    {"q5_k", 142420430},
    {"q6_k", 1011457099},
    {"q8_0 f16 gated", 2557634778},
    {"q8_0 f32 q5_1, halves", 1172733962},
    {"q8_0 f32 q5_1", 1904642966},
    {"q8_0 f32 q5_1, pairs", 1783619318},
    {"q8_0 three", 2005170426},
    {"q8_0", 2115152630},
    {"tq1_0", 570195256},
    {"tq2_0", 445025690},
  };
  for (const isa target : available_isas()) {
    const auto device = make_backend(target);
    CHECK(storable(*device).instruction_set() == target);
    CHECK(storable(*device).layout_version() == packed_layout_version);
    for (const auto& p : packings) {
      const packed weights(*device, p);
      const auto name = p.name +
        (has(*weights.result, in_pairs)      ? ", pairs"
           : has(*weights.result, in_halves) ? ", halves"
                                             : "");
      const auto found = checksum(joined(storable(*device).bytes_of(*weights.result)));
      CHECK_MESSAGE((known.contains(name) && known.at(name) == found), to_string(target), ": {\"", name, "\", ", found,
                    "},");
    }
  }
}

TEST_CASE("A matrix restored from packed bytes equals the original, and reads nothing else") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const auto& p : packings) {
      CAPTURE(to_string(target));
      CAPTURE(p.name);
      const packed weights(*device, p);
      const auto parts = storable(*device).bytes_of(*weights.result);
      for (const auto& part : parts)
        CHECK(part.size() % 64 == 0);
      const auto bytes = joined(parts);
      CHECK(bytes.size() == weights.result->bytes);
      CHECK(bytes.size() == device->packed_bytes(weights.without_data(), p.compute, p.how, p.gated));
      const auto restored = storable(*device).restore(weights.without_data(), p.compute, p.how, p.gated,
                                                      read_only(bytes));
      CHECK(restored->bytes == bytes.size());
      CHECK(restored->inputs == weights.result->inputs);
      CHECK(restored->outputs == weights.result->outputs);
      CHECK(joined(storable(*device).bytes_of(*restored)) == bytes);
      for (const std::size_t rows : {1, 40}) {
        const auto got = multiplied(*device, *restored, p, rows);
        CHECK(got == multiplied(*device, *weights.result, p, rows));
        CHECK(std::ranges::none_of(got.values(), [](double v) { return std::isnan(v); }));
      }
    }
  }
}

TEST_CASE("A packed matrix that is kept exactly gives the rows of its embedding table, bit for bit") {
  std::size_t exact = 0;
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const auto& p : packings) {
      if (p.gated || p.formats.size() > 1)
        continue;
      CAPTURE(to_string(target));
      CAPTURE(p.name);
      const packed weights(*device, p);
      const bool gives = storable(*device).gives_table(weights.without_data().front(), p.compute, p.how);
      const bool otherwise = is_pruned(p.formats[0]); // laid out for other things
      const bool rounded = p.how != quantization::none || p.name == "f32 bf16";
      CHECK(gives == !(rounded || otherwise));
      if (!gives)
        continue;
      ++exact;
      const auto table = device->load_table(weights.views[0]), same = storable(*device).table_of(*weights.result);
      CHECK(same->bytes == 0);
      const std::vector<std::int32_t> tokens{0, 1, 31, 32, 63, 64, 69, 5};
      numbers expected(dtype::f32, tokens.size() * inputs), found(dtype::f32, tokens.size() * inputs);
      device->embed(expected.rows(tokens.size()), *table, tokens.data());
      device->embed(found.rows(tokens.size()), *same, tokens.data());
      CHECK(std::memcmp(expected.data(), found.data(), tokens.size() * inputs * sizeof(float)) == 0);
    }
  }
  CHECK(exact >= 15);
}

TEST_CASE("Only matrices of a CPU backend have packed bytes") {
  const auto device = make_backend(isa::portable, 1);
  const fixed_weights table(weight_format::f32, 4, 32);
  CHECK_THROWS_AS(storable(*device).bytes_of(*device->load_table(table.view())), std::invalid_argument);
}

TEST_CASE("bf16 packs weights of f16 and f32 as if they were stored in bf16, alone and beside others") {
  constexpr std::size_t outputs = 70, inputs = 70;
  generator random(12);
  const auto values = random.normal(outputs * inputs, 0.05f);
  std::vector<float> rounded(values.size());
  for (const auto stored : {dtype::f32, dtype::f16}) {
    const numbers weights(stored, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      rounded[i] = static_cast<float>(weights[i]);
    const numbers as_bf16(dtype::bf16, rounded); // of f16's values: rounded twice, as files are
    const stored_matrix from(weights.data(), stored, outputs, inputs), to(as_bf16.data(), dtype::bf16, outputs, inputs);
    for (const isa target : tested_isas())
      for (const auto compute : compute_types) {
        CAPTURE(to_string(target));
        const auto device = make_backend(target, 1);
        const auto same = [&](const matrix& got, const matrix& want, std::size_t columns) {
          numbers in(compute, random.normal(9 * inputs)), a(dtype::f32, 9 * columns), b(dtype::f32, 9 * columns);
          device->linear(a.rows(9), in.rows(9), got);
          device->linear(b.rows(9), in.rows(9), want);
          CHECK(a == b);
          CHECK(got.bytes == want.bytes);
        };
        same(*device->pack({&from, 1}, compute, quantization::bf16), *device->pack({&to, 1}, compute), outputs);
        CHECK(device->packed_bytes({&from, 1}, compute, quantization::bf16, false) ==
              device->packed_bytes({&to, 1}, compute, quantization::none, false));
        const stored_matrix mixed[] = {from, to}, plain[] = {to, to};
        same(*device->pack(mixed, compute, quantization::bf16), *device->pack(plain, compute), 2 * outputs);
      }
  }
}
