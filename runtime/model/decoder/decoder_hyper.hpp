// The part of a decoder for hyper-connections (hyper_config): several residual streams. What attention or an MLP reads is
// mixed of them into the step's residual, and what it leaves there is added to all of them.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/decoder/decoder_step.hpp"
#include "runtime/techniques/layer_hook.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace troupe {

/// How a row's streams are read and written, without a rank.
struct stream_mix {
  std::vector<float> read;  // [streams]
  std::vector<float> write; // [streams]
  std::vector<float> keep;  // [streams, streams]: stream k gets keep[j, k] of stream j
};

/// `product` is what the streams' matrix gives, [2 streams + streams²] or, without mixes, [2 streams]; of the head,
/// which only reads, [streams].
stream_mix mix_streams(const hyper_config& config, std::span<const float> product, const hyper_weights& w);

class decoder_hyper {
public:
  /// Borrows the step.
  decoder_hyper(decoder_step& step);

  /// The streams of the step's rows, f32 [rows, streams * hidden]: a row has them one after another. They may be changed
  /// ahead of `read` and behind `write`.
  kernels::tensor streams() const;

  /// Every stream becomes the residual: behind the embeddings.
  void spread();

  /// The residual becomes what a part of a layer reads, ahead of its norm; how `write` writes is kept.
  void read(const hyper_weights& w);

  /// Makes zeros of the residual, to which the part then adds.
  void clear();

  /// Adds the residual to the streams, as the last `read` has found.
  void write();

  /// The residual becomes what the final norm reads.
  void merge();

  /// Calls `hook` with the mean of the streams as the residual, and adds to all of them what it changes.
  void show(const layer_hook& hook, int passed);

private:
  kernels::tensor stream(const kernels::tensor& of, int index) const;

  void read_ranked(const hyper_weights& w);
  /// The streams become sums of each other: for each shift, every stream is added to the one that many further on.
  void write_mixed();
  /// residual = the sum of the streams of `of`, each times `factors[stream * rows + row]`, or 1.
  void sum(const kernels::tensor& of, const float* factors);
  std::vector<float> download(const kernels::tensor& product);

  decoder_step& step_;
  kernels::backend& backend_;
  kernels::recurrent_ops* gates_;                 // with a rank
  kernels::buffer streams_, next_, normed_, mix_; // see activation_sizes
  kernels::buffer ones_;                          // without a rank
  std::vector<float> write_;                      // of the last `read`: [streams, rows]
  std::vector<float> keep_; // likewise, [shift, rows, from]: what stream from + shift keeps of stream `from`
};

} // namespace troupe
