#include "runtime/model/decoder/decoder_positions.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"
#include "runtime/model/rope.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

rotation upload_rotation(const rope_config& rope, int dim, int max_context, kernels::backend& backend) {
  rotation made{backend.upload(rope_table(rope, dim, max_context)), nullptr, rope_border(rope, max_context)};
  if (made.border > 0)
    made.longer = backend.upload(rope_table(rope, dim, max_context, max_context));
  return made;
}

decoder_positions::decoder_positions(const model_config& config, kernels::backend& backend, int max_context)
  : config_(config), backend_(backend) {
  if (config.positions == position_type::rotary)
    rope_ = upload_rotation(config.rope, config.head_dim, max_context, backend);
  if (config.local_rope)
    local_rope_ = upload_rotation(
      *config.local_rope, config.local_head_dim > 0 ? config.local_head_dim : config.head_dim, max_context, backend);
  if (config.positions == position_type::learned)
    require_in_decoder(as_size(max_context) + config.position_offset <= config.position_rows,
                       "more positions than learned ones");
  if (config.positions == position_type::alibi) {
    auto slopes = alibi_slopes(config.heads);
    for (float& slope : slopes)
      slope *= config.alibi_scale;
    slopes_ = backend.upload(slopes);
  }
}

void decoder_positions::begin(const kernels::batch& who) {
  growth_.clear();
  logarithms_.clear();
  if (config_.head_growth)
    for (const auto& s : who.sequences)
      for (std::int32_t r = 0; r < s.rows; ++r)
        logarithms_.push_back(std::log(static_cast<float>(s.first_position + r + 1)));
  if (const auto& growth = config_.growth; growth)
    for (const auto& s : who.sequences)
      for (std::int32_t r = 0; r < s.rows; ++r) {
        const auto periods = static_cast<float>(s.first_position + r + growth.first) /
          static_cast<float>(growth.period);
        growth_.push_back(growth.rate *
                          (growth.smooth ? std::log(std::max(1.0f, periods)) : std::log1p(std::floor(periods))));
      }
}

kernels::rope_rows decoder_positions::rotation_of(int layer) const {
  if (config_.is_unrotated(layer))
    return {};
  return (config_.rotates_locally(layer) ? local_rope_ : rope_).get();
}

const float* decoder_positions::slopes() const { return float_data(slopes_); }

void decoder_positions::grow(int layer, const kernels::tensor& queries) {
  if (config_.growth && (!config_.growth.unrotated || config_.is_unrotated(layer)) &&
      (!config_.growth.unwindowed || !config_.slides(layer)))
    backend_.add_rows(queries, queries, 1, nullptr, growth_.data());
}

void decoder_positions::grow_heads(const kernels::tensor& queries, std::size_t dim, std::span<const float> scale,
                                   std::span<const float> bias) {
  std::vector<float> more(logarithms_.size());
  for (std::size_t h = 0; h < scale.size(); ++h) {
    for (std::size_t r = 0; r < more.size(); ++r)
      more[r] = scale[h] * logarithms_[r] + bias[h] - 1;
    const auto head = column_part(queries, h * dim, dim);
    backend_.add_rows(head, head, 1, nullptr, more.data());
  }
}

} // namespace troupe
