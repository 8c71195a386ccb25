#include "runtime/techniques/dola/dola_layers.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/text/visible_text.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr auto field = "dola_layers";

std::vector<int> sorted(std::vector<int> layers) {
  if (layers.empty() || layers.size() > most_dola_layers)
    refuse_field(
      field, "must name 1 to " + std::to_string(most_dola_layers) + " layers, not " + std::to_string(layers.size()));
  std::ranges::sort(layers);
  if (layers.front() < 0)
    refuse_field(field, "must consist of layers from 0 on, not " + std::to_string(layers.front()));
  if (const auto twice = std::ranges::adjacent_find(layers); twice != layers.end())
    refuse_field(field, "names layer " + std::to_string(*twice) + " twice");
  return layers;
}

std::vector<int> every_other(int first, int end) {
  std::vector<int> layers;
  for (int i = first; i < end; i += 2)
    layers.push_back(i);
  return layers;
}

/// What a head that is the embedding matrix makes of an embedding is the same token again: layer 0 says nothing.
int first_layer(int layers, bool tied) { return !tied ? 0 : layers > 2 ? 2 : layers - 1; }

constexpr int many = 40; // layers: with more, only 20 at either end are looked at

std::vector<int> low_layers(int layers, bool tied) {
  const int first = first_layer(layers, tied), half = layers / 2;
  return first == half ? std::vector{first} : every_other(first, layers > many ? many / 2 : half);
}

std::vector<int> high_layers(int layers) { return every_other(layers > many ? layers - many / 2 : layers / 2, layers); }

} // namespace

dola_layers::dola_layers(std::string_view word) : asked_(word == "low" ? part::low : part::high) {
  if (word != "low" && word != "high")
    refuse_field(field,
                 "must be \"low\", \"high\" or a list of layers, not \"" + visible_name(word.substr(0, 80)) + '"');
}

dola_layers::dola_layers(std::vector<int> layers) : shared_list(sorted(std::move(layers))), asked_(part::listed) {}

dola_layers dola_layers::of_model(int layers, bool tied) const {
  if (asked_ == part::none)
    return {};
  if (asked_ == part::listed) {
    const int last = *(end() - 1);
    if (last >= layers)
      refuse_field(field,
                   "must consist of layers from 0 to " + std::to_string(layers - 1) + ", not " + std::to_string(last));
    return *this;
  }
  auto named = asked_ == part::low ? low_layers(layers, tied) : high_layers(layers);
  if (named.empty())
    refuse_field(field,
                 "\"low\" selects no layer of this model, which has " + std::to_string(layers) +
                   " and whose head is its embedding matrix: list layers instead");
  return dola_layers(std::move(named));
}

} // namespace troupe
