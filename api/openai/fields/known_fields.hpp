// Knows the names of all request fields. Tells the client about a field that nothing reads (misspelt, or another
// server's) instead of ignoring it in silence. Pure; runs on worker threads.
#pragma once

#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Sentences in one answer; further ones are counted.
inline constexpr std::size_t most_notes = 8;

/// Which requests have a field.
enum class field_scope : std::uint8_t { both, completions, chat };

/// Whether completions or chats have such a field, with or without influence.
bool is_known_field(std::string_view name, field_scope of);

/// A sentence for each field that nothing reads, of the body and of its `stream_options`, with a known name that is
/// much like it; none, or failure(bad_request) naming the first, if the server's operator wants that. `envelope`:
/// further members of the body, which the caller reads.
std::vector<std::string> notes_on_fields(const field_reader& body, unknown_fields how, field_scope of,
                                         std::span<const std::string_view> envelope = {});

/// A sentence for each member of the body whose name is not in `known`.
std::vector<std::string> notes_on_members(const field_reader& body, unknown_fields how,
                                          std::span<const std::string_view> known);

/// Adds the sentence for one member: "`name` is not known here and has no effect", with the one of `known` that may be
/// meant. Returns false, and adds nothing, if there are too many notes.
bool note_unknown(unknown_fields how, const field_reader& of, std::string_view name,
                  std::span<const std::string_view> known, std::vector<std::string>& notes);

/// All notes in one line of printable ASCII, for a header; of bounded length.
std::string header_of_notes(const std::vector<std::string>& notes);
/// All notes as a list, for messages of WebSockets.
std::string warnings_of_notes(const std::vector<std::string>& notes);

/// The first field of a body by which techniques judge several sequences together, which interfaces with one answer do
/// not have; empty: there is none.
std::string_view field_for_several(const field_reader& body);

} // namespace troupe
