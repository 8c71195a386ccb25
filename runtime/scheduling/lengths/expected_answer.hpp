// What is expected of an answer, and by which signs. Made when its request is admitted; its sequences share it.
#pragma once

#include "runtime/scheduling/lengths/length_model.hpp"

namespace troupe {

struct request; // runtime/scheduling/request.hpp

struct expected_answer {
  length_signs signs;
  answer_length length;
  bool learned = false; // from enough answers to hold others back by it
};

/// The signs of a request that generates something.
length_signs signs_of(const request& asked);

} // namespace troupe
