#include "kernels/cuda/weight_rotation.hpp"

#include <doctest/doctest.h>

using namespace troupe::kernels;
using namespace troupe::kernels::cuda;

namespace {

/// A matrix of one part with memory of its own, which is never read.
device_matrix matrix_in_rotation(weight_kind kind, std::size_t outputs) {
  device_matrix made;
  weight_part part;
  part.kind = kind;
  part.outputs = outputs;
  part.inputs = 128;
  part.stride = 128;
  part.tiles = outputs / tile_outputs;
  part.codes = std::make_shared<int>(0);
  if (scale_bytes(part) > 0)
    part.scales = std::make_shared<int>(0);
  made.parts.push_back(part);
  return made;
}

} // namespace

TEST_CASE("a measurement reads other matrices of the shape in turn, until they exceed the cache") {
  weight_rotation rotation;
  std::vector<device_matrix> layers;
  for (int i = 0; i < 5; ++i)
    layers.push_back(matrix_in_rotation(weight_kind::q4, 32));
  auto other_kind = matrix_in_rotation(weight_kind::q8, 32), other_size = matrix_in_rotation(weight_kind::q4, 48);
  for (const auto& m : layers)
    rotation.add(m);
  rotation.add(other_kind);
  rotation.add(other_size);

  const auto& part = layers[2].parts[0];
  const std::size_t each = code_bytes(part) + scale_bytes(part);
  const auto of = [&](std::size_t bytes) {
    std::vector<void*> codes;
    for (const auto& chosen : rotation.like(part, bytes)) {
      CHECK(shape_of(chosen) == shape_of(part));
      CHECK(chosen.scales != nullptr);
      codes.push_back(chosen.codes.get());
    }
    return codes;
  };
  const auto codes = [&](std::size_t i) { return layers[i].parts[0].codes.get(); };
  CHECK(of(0) == std::vector<void*>{codes(2)});
  CHECK(of(2 * each) == std::vector<void*>{codes(2), codes(0), codes(1)});
  CHECK(of(100 * each) == std::vector<void*>{codes(2), codes(0), codes(1), codes(3), codes(4)});
}

TEST_CASE("matrices that are gone are not read, and nothing keeps them") {
  weight_rotation rotation;
  const auto stays = matrix_in_rotation(weight_kind::bf16, 16);
  rotation.add(stays);
  std::weak_ptr<void> codes;
  {
    const auto goes = matrix_in_rotation(weight_kind::bf16, 16);
    rotation.add(goes);
    codes = goes.parts[0].codes;
    CHECK(rotation.like(stays.parts[0], 1 << 20).size() == 2);
  }
  CHECK(codes.expired());
  CHECK(rotation.like(stays.parts[0], 1 << 20).size() == 1);
  const auto unknown = matrix_in_rotation(weight_kind::bf16, 64); // never added
  CHECK(rotation.like(unknown.parts[0], 1 << 20).size() == 1);
}
