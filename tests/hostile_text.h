#ifndef TESSERA_TESTS_HOSTILE_TEXT_H_
#define TESSERA_TESTS_HOSTILE_TEXT_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera::testing {

// One to four random edits of `text`: a character lost, replaced or added, a
// part repeated, the end cut off. Most results are almost right.
inline std::string Mangle(std::string text, std::mt19937& random) {
  static constexpr absl::string_view kPieces[] = {
      "[",       "]",          "(",  ")",    ",",
      "=",       ":",          "@",  "+",    "-",
      "0",       "1",          "9",  " ",    "S",
      "R",       "P",          "S(", ")]",   "[",
      "x",       "_",          "\n", "\xff", "99999999999999999999",
      "Ragged(", "2147483647", "-1"};
  const int edits = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < edits; ++i) {
    const size_t at = random() % (text.size() + 1);
    const std::string piece(kPieces[random() % std::size(kPieces)]);
    switch (random() % 5) {
      case 0:
        text.insert(at, piece);
        break;
      case 1:
        text.replace(at, 1, piece);
        break;
      case 2:
        text.erase(at, 1);
        break;
      case 3:
        text.insert(at, text.substr(random() % (at + 1), 8));
        break;
      default:
        text.erase(at);
    }
  }
  return text;
}

// Texts that no parser accepts, or only by chance: empty and garbage ones,
// unbalanced and deep brackets, long repetitions, numbers beyond every type.
inline std::vector<std::string> GarbageTexts() {
  std::vector<std::string> texts = {"[",
                                    "]",
                                    "[[]]",
                                    "[1",
                                    "1]",
                                    "[1,,2]",
                                    "[,]",
                                    "[1,]",
                                    "()",
                                    "@",
                                    "@@",
                                    "=",
                                    "a",
                                    "a=",
                                    "=1",
                                    "a:1",
                                    ",",
                                    "f32",
                                    "f32[",
                                    "f32[] [",
                                    "f32[]]",
                                    "f99[]",
                                    "f32[]x",
                                    "f32[1] [S(]",
                                    "f32[1] [S()]",
                                    "f32[1] [S(0]",
                                    "f32[1] S(0)",
                                    "f32[1] [Ragged()]",
                                    "f32[1] [Ragged(0,]",
                                    std::string("\0", 1),
                                    std::string("f32[\0]", 6),
                                    "\xff\xfe"};
  for (absl::string_view piece :
       {"[", "(", "S(0)[", "1,", "R, ", "a=1,", "9", "Ragged(0,", "-", "P("}) {
    std::string text;
    for (int i = 0; i < 20000; ++i) text.append(piece.data(), piece.size());
    texts.push_back(text);
    texts.push_back("f32[4] [" + text);
    texts.push_back("f32[" + text);
    texts.push_back("[" + text + "]");
  }
  return texts;
}

// The garbage, and what `rounds` random edits make of each valid text.
inline std::vector<std::string> HostileTexts(
    absl::Span<const std::string> valid, uint32_t seed, int rounds) {
  std::mt19937 random(seed);
  std::vector<std::string> texts = GarbageTexts();
  for (const std::string& text : valid) {
    for (int i = 0; i < rounds; ++i) texts.push_back(Mangle(text, random));
  }
  return texts;
}

}  // namespace tessera::testing

#endif  // TESSERA_TESTS_HOSTILE_TEXT_H_
