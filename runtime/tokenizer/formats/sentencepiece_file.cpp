#include "runtime/tokenizer/formats/sentencepiece_file.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/tokenizer/formats/protobuf.hpp"
#include "runtime/tokenizer/models/token_model.hpp"

#include <cmath>

namespace troupe::tokenization {

namespace {

enum class model_type : std::int64_t { unigram = 1, bpe, word, character };

struct model_file {
  piece_list pieces;
  model_type type = model_type::unigram;
  bool byte_fallback = false;
  bool space_as_suffix = false;
  std::string_view unk = "<unk>", bos = "<s>", eos = "</s>";
  preparation preparing;
};

void read_piece(std::string_view message, model_file& to) {
  std::string_view text;
  float score = 0;
  std::int64_t kind = 1;
  protobuf_reader fields(message);
  while (const auto f = fields.next()) {
    switch (f->number) {
      case 1: text = f->bytes; break;
      case 2: score = f->real(); break;
      case 3: kind = f->integer(); break;
      default: break;
    }
  }
  const auto fail = [&](const std::string& what) {
    throw std::invalid_argument("has a piece (number " + std::to_string(to.pieces.size()) + ") " + what);
  };
  if (text.empty() || !is_utf8(text))
    fail(text.empty() ? "without a text" : "that is not valid UTF-8");
  if (!std::isfinite(score))
    fail("whose score is not a finite number");
  if (kind < 1 || kind > 6)
    fail("of the unknown type " + std::to_string(kind));
  if (to.pieces.size() > highest_id)
    fail("beyond the " + std::to_string(highest_id) + " that are supported");
  to.pieces.texts.push_back(text);
  to.pieces.scores.push_back(score);
  to.pieces.kinds.push_back(static_cast<piece_kind>(kind));
}

void read_training(std::string_view message, model_file& to) {
  protobuf_reader fields(message);
  while (const auto f = fields.next()) {
    switch (f->number) {
      case 3: to.type = static_cast<model_type>(f->integer()); break;
      case 24: to.space_as_suffix = f->flag(); break;
      case 35: to.byte_fallback = f->flag(); break;
      case 45: to.unk = f->bytes; break;
      case 46: to.bos = f->bytes; break;
      case 47: to.eos = f->bytes; break;
      default: break;
    }
  }
}

void read_preparation(std::string_view message, preparation& to) {
  protobuf_reader fields(message);
  while (const auto f = fields.next()) {
    switch (f->number) {
      case 2: to.charsmap = f->bytes; break;
      case 3: to.dummy_prefix = f->flag(); break;
      case 4: to.remove_extra_spaces = f->flag(); break;
      case 5: to.escape_spaces = f->flag(); break;
      default: break;
    }
  }
}

model_file read_model(std::string_view bytes) {
  model_file to;
  protobuf_reader fields(bytes);
  while (const auto f = fields.next()) {
    switch (f->number) {
      case 1: read_piece(f->bytes, to); break;
      case 2: read_training(f->bytes, to); break;
      case 3: read_preparation(f->bytes, to.preparing); break;
      default: break; // tests of the model itself, the way back to texts
    }
  }
  return to;
}

} // namespace

translated_file translate_sentencepiece(std::string_view bytes, const std::string& file) {
  const auto fail = [&](const std::string& what, errc code = errc::bad_file) {
    throw failure(code, file + ": " + what);
  };
  model_file model;
  try {
    model = read_model(bytes);
  } catch (const std::invalid_argument& e) {
    fail(std::string("is not a SentencePiece model: it ") + e.what());
  }
  const auto& pieces = model.pieces;
  if (pieces.size() == 0)
    fail("is not a SentencePiece model: it has no pieces");
  if (model.type != model_type::unigram && model.type != model_type::bpe)
    fail("holds a model of type " + std::to_string(static_cast<std::int64_t>(model.type)) +
           "; those of type 1 (Unigram) and 2 (BPE) are supported",
         errc::unsupported);
  if (model.space_as_suffix)
    fail("has `treat_whitespace_as_suffix`, which is not supported", errc::unsupported);
  if (model.type == model_type::bpe && pieces.find(piece_kind::unused))
    fail("has unused pieces (number " + std::to_string(*pieces.find(piece_kind::unused)) +
           "), which are supported only in Unigram models",
         errc::unsupported);
  const auto unknown = pieces.find(piece_kind::unknown);
  if (!unknown)
    fail("has no piece for unknown characters");
  translated_file to;
  const auto control = [&](std::string_view text) {
    const auto id = pieces.find(text);
    return id && pieces.is(*id, piece_kind::control) ? id : std::nullopt;
  };
  to.unk = unknown;
  to.bos = control(model.bos);
  to.eos = control(model.eos);
  to.add_bos = to.bos.has_value() && model.type == model_type::bpe; // Llama's, Gemma's; T5's have none
  to.search = model.type == model_type::bpe ? symbol_search::normalized_text : symbol_search::model;
  try {
    to.members = R"("normalizer":)" + preparation_json(model.preparing, pieces) +
      R"(,"pre_tokenizer":null,"decoder":)" + pieces_decoder_json(model.preparing) + R"(,"model":)" +
      (model.type == model_type::bpe ? scored_bpe_json(pieces, *unknown, model.byte_fallback)
                                     : unigram_json(pieces, *unknown, model.byte_fallback));
  } catch (const std::invalid_argument& e) {
    fail(e.what(), errc::unsupported);
  }
  to.pieces = std::move(model.pieces);
  return to;
}

} // namespace troupe::tokenization
