#include "runtime/checkpoint/quantised/quantised_checkpoint.hpp"

#include "kernels/formats/f16.hpp"
#include "kernels/formats/weight_groups.hpp"
#include "runtime/checkpoint/quantised/bitsandbytes_checkpoint.hpp"
#include "runtime/checkpoint/quantised/compressed_checkpoint.hpp"
#include "runtime/checkpoint/quantised/fp4_tensors.hpp"
#include "runtime/checkpoint/quantised/fp8_checkpoint.hpp"
#include "runtime/checkpoint/quantised/hqq_checkpoint.hpp"
#include "runtime/checkpoint/quantised/made_checkpoint.hpp"
#include "runtime/checkpoint/quantised/modelopt_checkpoint.hpp"
#include "runtime/checkpoint/quantised/mxfp4_checkpoint.hpp"
#include "runtime/checkpoint/quantised/torchao_checkpoint.hpp"
#include "runtime/checkpoint/rewritten_checkpoint.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

namespace troupe {

namespace {

constexpr std::size_t word_bits = 32;
constexpr std::size_t block = kernels::group_inputs;

/// AWQ interleaves each eight outputs: output `i` has the place `awq_place[i]` among them.
constexpr std::array<std::size_t, 8> awq_place{0, 4, 1, 5, 2, 6, 3, 7};

/// The tensors of one matrix. The constructor checks them.
class quantised_matrix {
public:
  quantised_matrix(const checkpoint& stored, const std::string& stem, const quantised_storage& how)
    : stored_(stored), stem_(stem), how_(how) {
    const auto& codes = find("qweight", tensor_type::i32, 2);
    const bool gptq = how.method == quantised_storage::method_name::gptq;
    const auto* scales = stored.find(stem + ".scales");
    coarse_scales_ = scales && scales->type == tensor_type::bf16;
    const auto& of_groups = find("scales", coarse_scales_ ? tensor_type::bf16 : tensor_type::f16, 2);
    if (how.by_module)
      read_rule((gptq ? codes : of_groups).shape[1]);
    const std::size_t packed = codes.shape[gptq ? 0 : 1];
    if (packed > (std::size_t(1) << 40))
      fail("qweight", "has the shape " + to_string(codes.shape) + ", which is more than memory can hold");
    const auto bits = static_cast<std::size_t>(how_.bits);
    inputs_ = gptq ? packed * word_bits / bits : codes.shape[0];
    outputs_ = gptq ? codes.shape[1] : packed * word_bits / bits;
    if (inputs_ == 0 || outputs_ == 0 || outputs_ * bits % word_bits != 0)
      fail("qweight",
           "has the shape " + to_string(codes.shape) + ", expected a multiple of " +
             std::to_string(word_bits / std::gcd(bits, word_bits)) + " outputs");
    if (gptq && packed * word_bits % bits != 0)
      fail("qweight",
           "has the shape " + to_string(codes.shape) + ", expected a multiple of " + std::to_string(bits) +
             " rows, as codes have " + std::to_string(bits) + " bits");
    group_ = how_.group == 0 ? inputs_ : how_.group;
    if (how.by_module)
      group_ = group_by_shape();
    expect("qzeros", find("qzeros", tensor_type::i32, 2), {groups(), row_words()});
    expect("scales", of_groups, {groups(), outputs_});
    info_.shape = {outputs_, inputs_};
    info_.type = choose_type();
    info_.bytes = outputs_ * kernels::row_bytes(*weight_format_of(info_.type), inputs_);
  }

  const tensor_info& info() const { return info_; }

  tensor_data unpack() const {
    const auto codes = stored_.read(stem_ + ".qweight"), scales = stored_.read(stem_ + ".scales");
    const auto zeros = read_zeros();
    const auto order = read_order();
    std::shared_ptr<std::byte[]> to(new std::byte[info_.bytes]);
    constexpr std::size_t tile = 16; // outputs whose codes or scales share a cache line
    for (std::size_t first = 0; first < outputs_; first += tile)
      for (std::size_t input = 0; input < inputs_; input += block)
        for (std::size_t output = first; output < std::min(outputs_, first + tile); ++output)
          write(to.get(), {codes.get(), scales.get(), zeros, order}, output, input);
    return to;
  }

private:
  struct parts {
    const void* codes;
    const void* scales;
    const std::vector<std::uint8_t>& zeros;
    const std::vector<std::int32_t>& group_of; // each input; empty: in order
  };

  [[noreturn]] void fail(const char* part, const std::string& what, errc code = errc::bad_file) const {
    const auto name = stem_ + "." + part;
    throw failure(code, stored_.where(stem_ + ".qweight") + ": tensor " + shown(name) + " " + what);
  }

  const tensor_info& find(const char* part, tensor_type type, std::size_t dimensions) const {
    const auto* found = stored_.find(stem_ + "." + part);
    if (!found)
      fail(part, "is missing");
    if (found->type != type || found->shape.size() != dimensions)
      fail(part,
           "is " + std::string(to_string(found->type)) + " " + to_string(found->shape) + ", expected " +
             std::string(to_string(type)) + " of " + std::to_string(dimensions) + " dimensions");
    return *found;
  }

  void expect(const char* part, const tensor_info& info, const std::vector<std::size_t>& shape) const {
    if (info.shape != shape)
      fail(part, "has the shape " + to_string(info.shape) + ", expected " + to_string(shape));
  }

  std::size_t groups() const { return (inputs_ + group_ - 1) / group_; }

  /// The bits of this module.
  void read_rule(std::size_t outputs) {
    const auto& zeros = find("qzeros", tensor_type::i32, 2);
    auto choices = how_.code_bits;
    std::ranges::sort(choices);
    std::string said;
    for (const int bits : choices) {
      if (outputs * static_cast<std::size_t>(bits) == zeros.shape[1] * word_bits) {
        how_.bits = bits;
        return;
      }
      said += (said.empty() ? "" : bits == choices.back() ? " or " : ", ") + std::to_string(bits);
    }
    fail("qzeros",
         "has the shape " + to_string(zeros.shape) + ", expected " + std::to_string(outputs) + " zero points of " +
           said + " bits in a row");
  }

  /// Inputs per scale in this module: what the configuration says of any module if there are as many scales, else equal
  /// groups.
  std::size_t group_by_shape() const {
    const auto stored = find("qzeros", tensor_type::i32, 2).shape[0];
    std::size_t found = 0;
    for (const auto named : how_.groups) {
      const auto group = named == 0 ? inputs_ : std::min(named, inputs_);
      if ((inputs_ + group - 1) / group != stored || group == found)
        continue;
      if (found != 0)
        fail("qzeros",
             "has the shape " + to_string(find("qzeros", tensor_type::i32, 2).shape) + ", which groups of " +
               std::to_string(found) + " and of " + std::to_string(group) + " inputs both have",
             errc::unsupported);
      found = group;
    }
    return found != 0 ? found : stored == 0 || inputs_ % stored != 0 ? group_ : inputs_ / stored;
  }

  /// The group of each input; empty if groups are consecutive.
  std::vector<std::int32_t> read_order() const {
    const auto name = stem_ + ".g_idx";
    if (how_.method != quantised_storage::method_name::gptq || !stored_.find(name))
      return {};
    expect("g_idx", find("g_idx", tensor_type::i32, 1), {inputs_});
    std::vector<std::int32_t> order(inputs_);
    std::memcpy(order.data(), stored_.read(name).get(), inputs_ * sizeof(std::int32_t));
    bool plain = true;
    const auto count = static_cast<std::int32_t>(groups());
    for (std::size_t i = 0; i < inputs_; ++i) {
      if (order[i] < 0 || order[i] >= count)
        fail("g_idx", "names the group " + std::to_string(order[i]) + ", expected one of " + std::to_string(count));
      plain = plain && static_cast<std::size_t>(order[i]) == i / group_;
    }
    return plain ? std::vector<std::int32_t>{} : order;
  }

  tensor_type choose_type() const {
    if (!read_order().empty() || inputs_ % block != 0 || (group_ % block != 0 && group_ != inputs_))
      return tensor_type::f16;
    const auto zeros = read_zeros();
    const bool symmetric = std::ranges::all_of(zeros, [&](int zero) { return zero == middle(); });
    if (how_.bits > 4)
      return symmetric ? tensor_type::q8_0 : tensor_type::f16;
    return symmetric ? tensor_type::q4_0 : tensor_type::q4_1;
  }

  int middle() const { return 1 << (how_.bits - 1); }

  /// The zero points [groups, outputs].
  std::vector<std::uint8_t> read_zeros() const {
    const auto stored = stored_.read(stem_ + ".qzeros");
    std::vector<std::uint32_t> words(groups() * row_words());
    std::memcpy(words.data(), stored.get(), words.size() * sizeof(std::uint32_t));
    std::vector<std::uint8_t> zeros(groups() * outputs_);
    const auto read = [&] {
      for (std::size_t i = 0; i < zeros.size(); ++i)
        zeros[i] = static_cast<std::uint8_t>(in_row(words.data(), i / outputs_, i % outputs_));
    };
    read();
    // Some programs store a symmetric matrix's zero points unchanged, yet declare the first format.
    if (!how_.zeros_less_one ||
        (how_.symmetric && std::ranges::all_of(zeros, [&](int zero) { return zero == middle(); })))
      return zeros;
    if (word_bits % bits() != 0) { // of 3 bits, each for itself
      for (auto& zero : zeros)
        zero = static_cast<std::uint8_t>((zero + 1) & (2 * middle() - 1));
      return zeros;
    }
    // Words were subtracted from as numbers: a zero point of 0 borrowed from the one above it.
    const std::uint32_t ones = ~0u / ((1u << how_.bits) - 1);
    for (auto& word : words)
      word += ones;
    read();
    return zeros;
  }

  std::size_t bits() const { return static_cast<std::size_t>(how_.bits); }
  std::size_t row_words() const { return outputs_ * bits() / word_bits; }

  bool is_awq() const { return how_.method == quantised_storage::method_name::awq; }

  /// The number of an output in row `row` of those packed along the outputs.
  int in_row(const void* words, std::size_t row, std::size_t output) const {
    const auto place = is_awq() ? output - output % awq_place.size() + awq_place[output % awq_place.size()] : output;
    return packed_code(words, row * row_words(), 1, place * bits(), bits());
  }

  int code(const parts& from, std::size_t output, std::size_t input) const {
    return is_awq() ? in_row(from.codes, input, output)
                    : packed_code(from.codes, output, outputs_, input * bits(), bits());
  }

  struct scale_and_zero {
    std::uint16_t scale; // f16
    int zero;
  };

  scale_and_zero of_group(const parts& from, std::size_t output, std::size_t group) const {
    std::uint16_t scale = 0;
    std::memcpy(&scale, static_cast<const char*>(from.scales) + (group * outputs_ + output) * sizeof scale,
                sizeof scale);
    if (coarse_scales_)
      scale = kernels::to_f16(std::bit_cast<float>(std::uint32_t(scale) << 16));
    return {scale, from.zeros[group * outputs_ + output]};
  }

  /// Writes the block of `output` that begins at `input`.
  void write(std::byte* to, const parts& from, std::size_t output, std::size_t input) const {
    const auto format = *weight_format_of(info_.type);
    auto* place = reinterpret_cast<std::uint8_t*>(to) + output * row_bytes(format, inputs_);
    const auto put = [&](std::uint16_t half) {
      *place++ = static_cast<std::uint8_t>(half & 0xff);
      *place++ = static_cast<std::uint8_t>(half >> 8);
    };
    if (info_.type == tensor_type::f16) {
      place += input * 2;
      for (std::size_t i = input; i < std::min(inputs_, input + block); ++i) {
        const auto group = from.group_of.empty() ? i / group_ : static_cast<std::size_t>(from.group_of[i]);
        const auto [scale, zero] = of_group(from, output, group);
        put(kernels::to_f16(kernels::from_f16(scale) * static_cast<float>(code(from, output, i) - zero)));
      }
      return;
    }
    place += row_bytes(format, input);
    const auto [scale, zero] = of_group(from, output, input / group_);
    put(scale);
    if (info_.type == tensor_type::q4_1)
      put(kernels::to_f16(-kernels::from_f16(scale) * static_cast<float>(zero)));
    if (info_.type == tensor_type::q8_0) {
      for (std::size_t i = 0; i < block; ++i)
        *place++ = static_cast<std::uint8_t>(code(from, output, input + i) - zero);
      return;
    }
    // Fewer bits become 4: where q4_0's zero is 8, codes move with it.
    const int up = info_.type == tensor_type::q4_0 ? 8 - zero : 0;
    for (std::size_t i = 0; i < block / 2; ++i)
      *place++ = static_cast<std::uint8_t>((code(from, output, input + i) + up) |
                                           (code(from, output, input + i + block / 2) + up) << 4);
  }

  const checkpoint& stored_;
  std::string stem_;
  quantised_storage how_;
  std::size_t inputs_ = 0, outputs_ = 0, group_ = 0;
  bool coarse_scales_ = false; // bf16, else f16
  tensor_info info_;
};

class quantised_checkpoint final : public rewritten_checkpoint<quantised_matrix> {
public:
  quantised_checkpoint(std::unique_ptr<const checkpoint> stored, const quantised_storage& how)
    : rewritten_checkpoint(std::move(stored)) {
    constexpr std::string_view suffix = ".qweight";
    for (const auto& name : stored_->tensors())
      if (name.ends_with(suffix)) {
        const auto stem = name.substr(0, name.size() - suffix.size());
        if (stored_->find(stem + ".weight"))
          throw failure(errc::bad_file,
                        stored_->where(name) + ": tensor " + shown(stem + ".weight") + " is there beside " +
                          shown(name));
        matrices_.try_emplace(stem + ".weight", *stored_, stem, how);
      }
  }

  std::vector<std::string> tensors() const override {
    std::vector<std::string> names;
    for (const auto& name : stored_->tensors())
      if (!is_part(name))
        names.push_back(name);
    append_names(names, matrices_);
    std::ranges::sort(names);
    return names;
  }

  std::string where(std::string_view tensor) const override {
    return stored_->where(matrices_.contains(tensor) ? stem_of(tensor) + ".qweight" : std::string(tensor));
  }

private:
  static std::string stem_of(std::string_view tensor) { return std::string(tensor.substr(0, tensor.rfind('.'))); }

  bool is_part(const std::string& name) const {
    constexpr std::array<std::string_view, 4> parts{".qweight", ".qzeros", ".scales", ".g_idx"};
    return std::ranges::any_of(parts, [&](auto part) { return name.ends_with(part); }) &&
      matrices_.contains(stem_of(name) + ".weight");
  }
};

} // namespace

std::unique_ptr<const checkpoint> open_quantised(std::unique_ptr<const checkpoint> stored,
                                                 const quantised_storage& how) {
  using enum quantised_storage::method_name;
  switch (how.method) {
    case fp8: return open_fp8(open_fp4_experts(std::move(stored)), how.scale_block);
    case mxfp4: return open_mxfp4(std::move(stored));
    case bitsandbytes: return open_bitsandbytes(std::move(stored));
    case compressed: return open_fp8(open_compressed(std::move(stored), how.code_bits), how.scale_block);
    case modelopt: return open_fp8(open_modelopt(std::move(stored)), how.scale_block);
    case torchao: return open_torchao(std::move(stored));
    case hqq: return open_hqq(std::move(stored));
    case gptq:
    case awq: break;
  }
  return std::make_unique<quantised_checkpoint>(std::move(stored), how);
}

} // namespace troupe
