#include "runtime/checkpoint/quantised/hqq_checkpoint.hpp"

#include "kernels/formats/bf16.hpp"
#include "runtime/checkpoint/quantised/made_checkpoint.hpp"

#include <array>
#include <bit>
#include <optional>

namespace troupe {

namespace {

constexpr std::string_view hqq_codes_suffix = ".W_q";
constexpr std::size_t most_hqq_weights = std::size_t(1) << 40;

/// Rows of codes are cut into as many equal parts as a word holds codes; the first part is in the highest bits.
struct hqq_packing {
  std::string_view name;
  unsigned bits;
  std::size_t codes; // in a word
  tensor_type word;
};

constexpr std::array<hqq_packing, 5> hqq_packings{{{"8bit_u8", 8, 1, tensor_type::u8},
                                                   {"4bit_u8", 4, 2, tensor_type::u8},
                                                   {"3bit_32", 3, 10, tensor_type::i32}, // the last rows may be padding
                                                   {"2bit_u8", 2, 4, tensor_type::u8},
                                                   {"1bit_u8", 1, 8, tensor_type::u8}}};

/// What is said of a matrix beside its codes, scales and zero points. Not all of it is needed.
constexpr std::array<std::string_view, 16> hqq_descriptions{".shape",
                                                            ".group_size",
                                                            ".axis",
                                                            ".packing",
                                                            ".nbits",
                                                            ".view_as_float",
                                                            ".quant_scale",
                                                            ".quant_zero",
                                                            ".channel_wise",
                                                            ".optimize",
                                                            ".round_zero",
                                                            ".compute_dtype",
                                                            ".offload_meta",
                                                            ".unpack_view_dtype",
                                                            ".encoded_state_dict",
                                                            ".stores_quant_config"};

class hqq_matrix {
public:
  hqq_matrix(const checkpoint& stored, const std::string& codes)
    : stored_(stored), codes_(codes), stem_(codes.substr(0, codes.size() - hqq_codes_suffix.size())) {
    for (const char* flag : {".quant_scale", ".quant_zero"})
      if (integer(flag, 0) != 0)
        fail(flag, "is 1: scales and zero points that are quantised themselves are not supported", errc::unsupported);
    if (integer(".channel_wise", 1) != 1)
      fail(".channel_wise", "is 0: a scale for the whole matrix is not supported", errc::unsupported);
    read_packing();
    read_sizes();
    check_codes();
    const auto& scale = part(".scale", {tensor_type::f16, tensor_type::bf16, tensor_type::f32});
    type_ = scale.type;
    const std::vector<std::size_t> each = by_input_ ? std::vector<std::size_t>{rows_, 1}
                                                    : std::vector<std::size_t>{1, columns_};
    require_shape(stored_, codes_, stem_ + ".scale", scale, each);
    require_shape(stored_, codes_, stem_ + ".zero", part(".zero", {type_}), each);
    scales_ = float_values(stored_, stem_ + ".scale");
    zeros_ = float_values(stored_, stem_ + ".zero");
    choose_type();
  }

  const tensor_info& info() const { return info_; }

  tensor_data unpack() const {
    const auto data = stored_.read(codes_);
    if (has_blocks(info_.type)) {
      const int middle = shape_.bits > 4 ? 128 : 8;
      return coded_rows_of(info_, shape_, lines_, [&](std::size_t o, std::size_t i) {
        return static_cast<int>(code(data.get(), o * shape_.inputs + i)) - middle;
      });
    }
    std::shared_ptr<std::byte[]> to(new std::byte[info_.bytes]);
    const auto size = size_of(type_);
    for (std::size_t at = 0; at < shape_.outputs * shape_.inputs; ++at) {
      const auto line = by_input_ ? at / columns_ : at % columns_;
      const float moved = rounded(static_cast<float>(code(data.get(), at)) - zeros_[line]);
      put(to.get() + at * size, moved * scales_[line]);
    }
    return to;
  }

private:
  [[noreturn]] void fail(std::string_view suffix, const std::string& what, errc error = errc::bad_file) const {
    refuse_part(stored_, codes_, stem_ + std::string(suffix), what, error);
  }

  const tensor_info& part(const char* suffix, std::initializer_list<tensor_type> types) const {
    return require_part(stored_, codes_, stem_ + suffix, types);
  }

  /// A tensor of one integer.
  std::int64_t integer(const char* suffix, std::optional<std::int64_t> fallback = {}) const {
    if (fallback && !stored_.find(stem_ + suffix))
      return *fallback;
    const auto& info = part(suffix, {tensor_type::i32, tensor_type::i64, tensor_type::u8, tensor_type::boolean});
    if (info.bytes != size_of(info.type))
      fail(suffix, "has the shape " + to_string(info.shape) + ", expected one number");
    const auto data = stored_.read(stem_ + suffix);
    if (info.type == tensor_type::i32)
      return *static_cast<const std::int32_t*>(data.get());
    if (info.type == tensor_type::i64)
      return *static_cast<const std::int64_t*>(data.get());
    return *static_cast<const std::uint8_t*>(data.get());
  }

  void read_packing() {
    constexpr std::size_t longest = 64;
    const auto& info = part(".packing", {tensor_type::u8});
    if (info.bytes > longest)
      fail(".packing", "has " + std::to_string(info.bytes) + " bytes, expected a short name");
    const auto data = stored_.read(stem_ + ".packing");
    const std::string_view name(static_cast<const char*>(data.get()), info.bytes);
    const auto found = std::ranges::find(hqq_packings, name, &hqq_packing::name);
    if (found == hqq_packings.end())
      fail(".packing", "says " + shown(name) + ", expected 8bit_u8, 4bit_u8, 3bit_32, 2bit_u8 or 1bit_u8",
           errc::unsupported);
    packing_ = *found;
  }

  void read_sizes() {
    require_shape(stored_, codes_, stem_ + ".shape", part(".shape", {tensor_type::i64}), {2});
    const auto data = stored_.read(stem_ + ".shape");
    const auto* sizes = static_cast<const std::int64_t*>(data.get());
    const auto say = "[" + std::to_string(sizes[0]) + ", " + std::to_string(sizes[1]) + "]";
    constexpr auto most = static_cast<std::int64_t>(most_hqq_weights);
    if (sizes[0] < 1 || sizes[1] < 1 || sizes[0] > most || sizes[1] > most / sizes[0])
      fail(".shape", "says " + say + ", expected a matrix");
    shape_.outputs = static_cast<std::size_t>(sizes[0]);
    shape_.inputs = static_cast<std::size_t>(sizes[1]);
    const auto weights = shape_.outputs * shape_.inputs;
    const auto group = integer(".group_size");
    if (group < 1 || group > most || weights % static_cast<std::size_t>(group) != 0)
      fail(".group_size", "is " + std::to_string(group) + ", which does not divide a matrix of " + say);
    const auto axis = integer(".axis");
    if (axis != 0 && axis != 1)
      fail(".axis", "is " + std::to_string(axis) + ", expected 0 or 1");
    by_input_ = axis == 1;
    shape_.group = static_cast<std::size_t>(group);
    rows_ = by_input_ ? weights / shape_.group : shape_.group;
    columns_ = weights / rows_;
  }

  void check_codes() {
    const bool padded = packing_.word == tensor_type::i32;
    if (!padded && rows_ % packing_.codes != 0)
      fail(hqq_codes_suffix,
           "cannot hold " + std::to_string(rows_) + " groups, as a byte has codes of " +
             std::to_string(packing_.codes) + " of them");
    step_ = (rows_ + packing_.codes - 1) / packing_.codes;
    if (integer(".view_as_float", 0) == 0) {
      require_shape(stored_, codes_, codes_, part(hqq_codes_suffix.data(), {packing_.word}), {step_, columns_});
      return;
    }
    const auto& info = part(hqq_codes_suffix.data(), {tensor_type::f16, tensor_type::bf16, tensor_type::f32});
    if (const auto bytes = step_ * columns_ * size_of(packing_.word); info.bytes != bytes)
      fail(hqq_codes_suffix,
           "has " + std::to_string(info.bytes) + " bytes of codes, expected " + std::to_string(bytes));
  }

  /// Blocks if they hold what the package computes.
  void choose_type() {
    shape_.bits = packing_.bits > 4 ? 8 : 4;
    shape_.offsets = true;
    const float middle = shape_.bits > 4 ? 128 : 8;
    constexpr float part_of_step = 1 / 128.0f; // as far as f16 rounds 16 steps
    bool blocks = by_input_ && shape_.inputs % shape_.group == 0 && shape_.group % kernels::group_inputs == 0;
    for (std::size_t i = 0; blocks && i < scales_.size(); ++i) {
      const float scale = scales_[i], offset = scale * (middle - zeros_[i]), least = -scale * zeros_[i];
      lines_.push_back({scale, offset});
      blocks = kernels::from_f16(kernels::to_f16(scale)) == scale &&
        std::abs(kernels::from_f16(kernels::to_f16(least)) - least) <= std::abs(scale) * part_of_step;
    }
    if (blocks)
      info_ = coded_info(shape_, lines_);
    if (has_blocks(info_.type))
      return;
    lines_.clear();
    info_.type = type_;
    info_.shape = {shape_.outputs, shape_.inputs};
    info_.bytes = shape_.outputs * shape_.inputs * size_of(type_);
  }

  /// The code of the weight `at`, counted row by row.
  unsigned code(const void* words, std::size_t at) const {
    const auto row = at / columns_, word = row % step_ * columns_ + at % columns_;
    const auto shift = (packing_.codes - 1 - row / step_) * packing_.bits;
    std::uint32_t value = 0;
    if (packing_.word == tensor_type::i32)
      std::memcpy(&value, static_cast<const std::byte*>(words) + word * sizeof value, sizeof value);
    else
      value = static_cast<const std::uint8_t*>(words)[word];
    return value >> shift & ((1u << packing_.bits) - 1);
  }

  float rounded(float value) const {
    return type_ == tensor_type::f16 ? kernels::from_f16(kernels::to_f16(value))
      : type_ == tensor_type::bf16   ? std::bit_cast<float>(std::uint32_t(kernels::to_bf16(value)) << 16)
                                     : value;
  }

  void put(std::byte* to, float value) const {
    if (type_ == tensor_type::f32) {
      std::memcpy(to, &value, sizeof value);
      return;
    }
    const auto half = type_ == tensor_type::f16 ? kernels::to_f16(value) : kernels::to_bf16(value);
    std::memcpy(to, &half, sizeof half);
  }

  const checkpoint& stored_;
  std::string codes_, stem_;
  hqq_packing packing_ = hqq_packings[0];
  coded_shape shape_;
  bool by_input_ = true;                          // groups along inputs, a row each; else a column each
  std::size_t rows_ = 0, columns_ = 0, step_ = 0; // of the matrix of groups; its packed rows
  tensor_type type_ = tensor_type::f16;           // that the package computes in
  std::vector<float> scales_, zeros_;             // of the groups: weight = (code - zero) * scale
  std::vector<code_line> lines_;                  // where it becomes blocks
  tensor_info info_;
};

} // namespace

std::unique_ptr<const checkpoint> open_hqq(std::unique_ptr<const checkpoint> stored) {
  auto result = std::make_unique<made_checkpoint>(std::move(stored));
  for (const auto& name : result->stored().tensors()) {
    if (!name.ends_with(hqq_codes_suffix))
      continue;
    const auto matrix = std::make_shared<const hqq_matrix>(result->stored(), name);
    const auto stem = name.substr(0, name.size() - hqq_codes_suffix.size());
    result->add(stem + ".weight", matrix->info(), {name, stem + ".scale", stem + ".zero"},
                [matrix] { return matrix->unpack(); });
    for (const auto suffix : hqq_descriptions)
      result->hide(stem + std::string(suffix));
  }
  return result;
}

} // namespace troupe
