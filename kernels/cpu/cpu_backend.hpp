// The CPU backend: run-time dispatch over instruction sets, and its own thread pool. Idle threads sleep.
#pragma once

#include "kernels/ops.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::kernels {

/// Dispatch targets, slowest first. Results differ between targets; on each they are schedule-invariant.
enum class isa : std::uint8_t { portable, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, avx512_amx };

std::string_view to_string(isa target);

/// The targets that this machine can run, slowest first; never empty. On processors with tile registers, the first call
/// requests them from the system for the whole process, including threads that are already running.
std::vector<isa> available_isas();

struct cpu_options {
  int threads = 0; // 0: one per core that this process may use
  isa target = available_isas().back();
  std::size_t cache = 0; // bytes of a core's L2, to size blocks; 0: ask the system. Changes no bit
};

/// Packed matrices of a CPU backend are plain bytes, which a file can keep and lend to any process. See
/// backend::storable.
class storable_matrices {
public:
  virtual ~storable_matrices() = default;

  /// Backends of one instruction set and version make the same bytes of the same weights.
  virtual isa instruction_set() const = 0;
  virtual int layout_version() const = 0;

  /// The memory of a matrix made by `pack` or `pack_gate_up`, in parts, each a multiple of 64 bytes.
  virtual std::vector<std::span<const std::byte>> bytes_of(const matrix& packed) const = 0;

  /// The matrix that `pack` (`gated`: `pack_gate_up`) made of matrices of these formats and shapes; their data is not
  /// read. `bytes` has its parts one after another, `packed_bytes` in total, aligned to 64 bytes. It is shared and only
  /// read.
  virtual std::unique_ptr<matrix> restore(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                          bool gated, const buffer& bytes) const = 0;
};

std::unique_ptr<backend> make_cpu_backend(const cpu_options& options = {});

} // namespace troupe::kernels
