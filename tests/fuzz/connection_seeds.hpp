// Connections to mutate, in parts whose lengths are made to fit when they are served, so that a mutated body keeps a
// correct length.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::test {

/// The input for drive_connection() that a script stands for: a client's habit, then parts. A part begins with the byte
/// 1e and a letter: v (bytes as they are), s (a head, 1f and a body whose length is said), c (a body in chunks), f (a
/// frame's text behind 1f) or w (the client waits until the server is idle). Any bytes are a script.
std::string connection_bytes(std::string_view script);

/// The same of one request.
std::string request_bytes(std::string_view path, std::string_view body);

std::vector<std::string> connection_seeds();

/// A dictionary of the formats in a connection's bytes.
const std::vector<std::string>& connection_words();

} // namespace troupe::test
