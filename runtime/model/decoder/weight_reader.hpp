// Reads a checkpoint's tensors into a backend's memory while a model loads: matrices packed, or restored from the
// packed cache, vectors in f32. Counts the bytes of both sides.
#pragma once

#include "runtime/model/decoder/weights.hpp"
#include "runtime/model/packing.hpp"

#include <set>
#include <string>

namespace troupe {

class weight_reader {
public:
  /// `cache` may be null. What is passed by reference is used until the end. Throws as `require_tensor`.
  weight_reader(const checkpoint& tensors, kernels::backend& backend, precision precision, const model_config& config,
                const progress_fn& progress, packed_cache* cache);

  /// Rows that are looked up. `memory`: the table may refer to it.
  std::unique_ptr<const kernels::matrix> table(const wanted_tensor& w, tensor_data& memory);

  std::unique_ptr<const kernels::matrix> matrix(const packed_group& group);

  /// One f32 vector of all `parts`, in order.
  kernels::buffer vector(const std::vector<wanted_tensor>& parts);

  /// The biases of `matrices` as one vector; null unless they are present.
  kernels::buffer bias(const std::vector<wanted_tensor>& matrices, bool present);

  /// Norms without weights get ones.
  norm_weights norm(const wanted_tensor& weight, bool plain = false);

  kernels::buffer upload(const std::vector<float>& values);

  /// Appends a vector, or the first row of a matrix of floats.
  void append(std::vector<float>& to, const wanted_tensor& w) const;

  /// Appends all values of a small matrix of floats.
  void append_matrix(std::vector<float>& to, const wanted_tensor& w);

  float host_number(const wanted_tensor& w);

  /// A tensor has been read by `append`; the other functions report theirs.
  void report(const wanted_tensor& w);

  /// Counts what was packed otherwise.
  void count_bytes(std::size_t bytes) { bytes_ += bytes; }

  /// Bytes in the backend's memory.
  std::size_t bytes() const { return bytes_; }

protected:
  const checkpoint& tensors_;
  kernels::backend& backend_;

private:
  kernels::stored_matrix stored(const wanted_tensor& w, const tensor_data& data) const;
  std::unique_ptr<const kernels::matrix> restored(const packed_group& group) const;
  std::unique_ptr<const kernels::matrix> packed(const packed_group& group);
  void read_ahead(const packed_group& group);

  const kernels::storable_matrices* storable_; // not null if cache_ is not
  kernels::dtype compute_;
  const model_config& config_;
  const std::vector<packed_group> groups_; // in the order of the file, about that of loading
  std::size_t next_ = 0;                   // of them, behind the one that was packed last
  const progress_fn& progress_;
  packed_cache* cache_;  // or null
  kernels::buffer ones_; // of all norms without weights; not counted
  std::set<std::string> done_names_;
  std::size_t done_ = 0, total_ = 0; // bytes as stored
  std::size_t bytes_ = 0;
};

} // namespace troupe
