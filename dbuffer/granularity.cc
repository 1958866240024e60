#include "tessera/dbuffer/granularity.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tessera/base/checked_math.h"

namespace tessera {

absl::StatusOr<Granularity> Granularity::Rows(int64_t rows) {
  if (rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("dbuffer: want blocks of at least one row, found ", rows));
  }
  return Granularity(Kind::kRow, rows);
}

absl::StatusOr<Granularity> Granularity::Parse(absl::string_view text) {
  if (text == "element") return Element();
  if (text == "inner-row") return InnerRow();
  if (text == "row") return Row();
  absl::string_view digits = text;
  int64_t rows = 0;
  if (absl::ConsumePrefix(&digits, "rows:") &&
      absl::SimpleAtoi(digits, &rows)) {
    return Rows(rows);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dbuffer: want a granularity of 'element', 'inner-row', "
                   "'row' or 'rows:K', found '",
                   text, "'"));
}

int Granularity::FirstWholeDim(const Shape& shape) const {
  switch (kind_) {
    case Kind::kElement:
      return shape.num_dims();
    case Kind::kInnerRow:
      return std::max(shape.num_dims() - 1, std::min(shape.num_dims(), 1));
    case Kind::kRow:
      return std::min(shape.num_dims(), 1);
  }
  return 0;
}

int64_t Granularity::ElementsOf(const Shape& shape) const {
  // Below, no product exceeds the number of elements: it fits.
  int64_t row = 1;
  for (int dim = FirstWholeDim(shape); dim < shape.num_dims(); ++dim) {
    row *= shape.extent(dim);
  }
  const int64_t whole = std::max<int64_t>(shape.num_elements(), 1);
  return std::clamp<int64_t>(SaturatingMul(row, rows_), 1, whole);
}

std::string Granularity::ToString() const {
  switch (kind_) {
    case Kind::kElement:
      return "element";
    case Kind::kInnerRow:
      return "inner-row";
    case Kind::kRow:
      return rows_ == 1 ? "row" : absl::StrCat("rows:", rows_);
  }
  return "";
}

}  // namespace tessera
