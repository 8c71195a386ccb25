// Finds the matrices of a model to whose products techniques may add.
#pragma once

#include "runtime/model/model_config.hpp"
#include "runtime/techniques/products.hpp"

namespace troupe {

/// The products of q, k, v, o and of MLPs that every row reads; not those of experts, nor what makes latents.
model_products products_of(const model_config& config);

} // namespace troupe
