#include "runtime/tokenizer/formats/older_folder.hpp"

#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json_reader.hpp"
#include "runtime/tokenizer/formats/pieces.hpp"
#include "runtime/tokenizer/formats/sentencepiece_file.hpp"
#include "runtime/tokenizer/formats/tiktoken_file.hpp"
#include "runtime/tokenizer/models/token_model.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace troupe::tokenization {

namespace {

namespace fs = std::filesystem;

std::optional<fs::path> file_in(const fs::path& folder) {
  for (const auto* name : {"tokenizer.model", "tiktoken.model"})
    if (is_there(folder / name))
      return folder / name;
  std::optional<fs::path> only;
  std::error_code error;
  auto entry = fs::directory_iterator(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() != ".tiktoken")
      continue;
    if (only)
      throw failure(errc::bad_file, folder.string() + ": holds several .tiktoken files");
    only = entry->path();
  }
  return only;
}

/// `added_tokens_decoder`: by id, what is beyond the model's own file.
std::vector<added_piece> added_pieces(const json::reader& config) {
  std::vector<added_piece> result;
  const auto list = config.object("added_tokens_decoder");
  if (!list)
    return result;
  for (const auto [key, value] : list->object()) {
    const auto token = list->at(key);
    added_piece piece;
    std::uint64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id > highest_id)
      token.refuse("must have an id from 0 to " + std::to_string(highest_id) + " as its key");
    piece.id = static_cast<token_id>(id);
    piece.content = token.at("content").string();
    piece.single_word = token.boolean("single_word", false);
    piece.left_strip = token.boolean("lstrip", false);
    piece.right_strip = token.boolean("rstrip", false);
    piece.normalized = token.boolean("normalized", false);
    piece.special = token.boolean("special", false);
    if (!piece.content.empty())
      result.push_back(std::move(piece));
  }
  std::ranges::sort(result, {}, &added_piece::id);
  return result;
}

/// The name for the way in which texts are split: the file's, or the model's.
std::string family_name(const fs::path& folder, const fs::path& file) {
  if (file.extension() == ".tiktoken")
    return file.stem().string();
  if (!is_there(folder / "config.json"))
    return file.stem().string();
  const auto config = json::document::load(folder / "config.json");
  return json::reader(config).string("model_type").value_or("");
}

} // namespace

std::optional<older_tokenizer> find_older_tokenizer(const fs::path& folder) {
  const auto file = file_in(folder);
  if (!file)
    return std::nullopt;
  const auto bytes = read_file(*file, files::tokenizer);
  std::optional<json::document> config;
  std::vector<added_piece> others;
  std::optional<bool> add_bos, add_eos;
  if (is_there(folder / "tokenizer_config.json")) {
    config = json::document::load(folder / "tokenizer_config.json");
    const json::reader members(*config, json::tokenizer_wording);
    others = added_pieces(members);
    add_bos = members.boolean("add_bos_token");
    add_eos = members.boolean("add_eos_token");
  }
  const auto name = file->string();
  const bool ranks = begins_as_tiktoken(bytes);
  const auto found = ranks ? translate_tiktoken(bytes, name, family_name(folder, *file), others)
                           : translate_sentencepiece(bytes, name);
  std::vector<token_id> before, after;
  if (found.bos && add_bos.value_or(found.add_bos))
    before.push_back(*found.bos);
  if (found.eos && add_eos.value_or(false))
    after.push_back(*found.eos);
  return older_tokenizer{"{" + found.members + R"(,"added_tokens":)" + added_json(found.pieces, found.search, others) +
                           R"(,"post_processor":)" + around_json(found.pieces, before, after) + "}",
                         name, found.bos, found.eos, found.unk};
}

} // namespace troupe::tokenization
