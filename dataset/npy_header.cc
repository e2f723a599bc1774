#include "dataset/npy_header.h"

#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace cohort::dataset {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr const char* kRewrite = "write it again with numpy.save, or import the data set again";

// Reads the header's dictionary literal, one token at a time.
class DictReader {
 public:
  DictReader(std::string_view text, std::string place) : text_(text), place_(std::move(place)) {}

  // Skips blanks and takes `token` when it comes next.
  bool take(std::string_view token) {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }

  void need(std::string_view token) {
    if (!take(token)) fail(base::format("'{}'", token));
  }

  std::string string() {
    const char quote = take("'") ? '\'' : take("\"") ? '"' : '\0';
    if (quote == '\0') fail("a quoted string (a structured dtype is not a plain array)");
    const std::size_t end = text_.find(quote);
    if (end == std::string_view::npos) fail("a closing quote");
    const std::string value(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return value;
  }

  bool boolean() {
    if (take("True")) return true;
    need("False");
    return false;
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    need("(");
    while (!take(")")) {
      int64_t value = 0;
      take("");
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
      if (error != std::errc{} || value < 0) fail("a length of the shape");
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      values.push_back(value);
      if (!take(",")) {
        need(")");
        break;
      }
    }
    return values;
  }

  void end() {
    take("");
    if (!text_.empty()) fail("the end of the header");
  }

  [[noreturn]] void fail(const std::string& expected) const {
    throw base::Error({place_, expected + " in the .npy header", base::format("'{}'", text_.substr(0, 24)), kRewrite});
  }

 private:
  std::string_view text_;
  std::string place_;
};

// What the three keys say, before it is judged.
struct Fields {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

Fields read_fields(std::string_view text, const std::string& place) {
  Fields fields;
  DictReader reader(text, place);
  bool have_descr = false, have_order = false, have_shape = false;
  reader.need("{");
  while (!reader.take("}")) {
    const std::string key = reader.string();
    reader.need(":");
    if (key == "descr" && !std::exchange(have_descr, true)) {
      fields.descr = reader.string();
    } else if (key == "fortran_order" && !std::exchange(have_order, true)) {
      fields.fortran_order = reader.boolean();
    } else if (key == "shape" && !std::exchange(have_shape, true)) {
      fields.shape = reader.tuple();
    } else {
      reader.fail(base::format("descr, fortran_order and shape once each instead of '{}'", key));
    }
    if (!reader.take(",")) {
      reader.need("}");
      break;
    }
  }
  reader.end();
  if (!have_descr || !have_order || !have_shape) reader.fail("the keys descr, fortran_order and shape");
  return fields;
}

DType judge_descr(const std::string& descr, const std::string& place) {
  if (const auto dtype = dtype_of_descr(descr)) return *dtype;
  if (descr.starts_with(">")) {
    throw base::Error({place, "little-endian data", base::format("big-endian dtype '{}'", descr),
                       "convert it: array.astype(array.dtype.newbyteorder('<'))"});
  }
  throw base::Error({place, "dtype uint8, float16, uint16 (bfloat16), float32, int32 or int64",
                     base::format("dtype '{}'", descr), "convert it with array.astype(...)"});
}

// Throws when the shape's bytes cannot be counted in 63 bits.
void judge_shape(const std::vector<int64_t>& shape, DType dtype, const std::string& place) {
  int64_t bytes = static_cast<int64_t>(size_of(dtype));
  for (const int64_t length : shape) {
    if (__builtin_mul_overflow(bytes, length, &bytes)) {
      throw base::Error({place, "a shape of less than 2^63 bytes", shape_text(shape), kRewrite});
    }
  }
}

// Elements are read where they lie in the mapped file.
void judge_start(std::size_t header_bytes, DType dtype, const std::string& place) {
  if (header_bytes % size_of(dtype) == 0) return;
  throw base::Error({place, base::format("data that start at a multiple of {} bytes", size_of(dtype)),
                     base::format("data at byte {}", header_bytes), kRewrite});
}

std::size_t little_endian(std::span<const std::byte> bytes) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) value |= std::to_integer<std::size_t>(bytes[i]) << (8 * i);
  return value;
}

}  // namespace

int64_t NpyHeader::num_elements() const {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

std::size_t NpyHeader::data_bytes() const { return static_cast<std::size_t>(num_elements()) * size_of(dtype); }

NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& place) {
  if (file.empty()) throw base::Error({place, "a .npy array", "an empty file", kRewrite});
  if (file.size() < 12 || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    throw base::Error({place, "a .npy array", base::format("{} bytes without the .npy magic", file.size()), kRewrite});
  }
  const int version = std::to_integer<int>(file[6]), minor = std::to_integer<int>(file[7]);
  if (version < 1 || version > 3 || minor != 0) {
    throw base::Error({place, ".npy format 1.0, 2.0 or 3.0", base::format("format {}.{}", version, minor), kRewrite});
  }
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t text_start = 8 + length_bytes, text_bytes = little_endian(file.subspan(8, length_bytes));
  if (text_bytes > file.size() - text_start) {
    throw base::Error({place, base::format("a header of {} bytes", text_bytes),
                       base::format("a truncated file of {} bytes", file.size()), kRewrite});
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + text_start, text_bytes);
  Fields fields = read_fields(text, place);
  const DType dtype = judge_descr(fields.descr, place);
  if (fields.fortran_order && fields.shape.size() > 1) {
    throw base::Error(
        {place, "C order (rows one after the other)", "Fortran order", "convert it with numpy.ascontiguousarray(...)"});
  }
  judge_shape(fields.shape, dtype, place);
  judge_start(text_start + text_bytes, dtype, place);
  return {dtype, std::move(fields.shape), text_start + text_bytes};
}

std::string format_npy_header(DType dtype, const std::vector<int64_t>& shape) {
  const std::string comma = shape.size() == 1 ? "," : "";
  std::string dict = base::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr_of(dtype),
                                  base::joined(shape), comma);
  constexpr std::size_t kPreludeBytes = 10, kAlignBytes = 64;
  const std::size_t unpadded = kPreludeBytes + dict.size() + 1;
  dict.append((kAlignBytes - unpadded % kAlignBytes) % kAlignBytes, ' ');
  dict += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(dict.size() & 0xFF);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

std::string shape_text(const std::vector<int64_t>& shape) { return base::format("[{}]", base::joined(shape)); }

}  // namespace cohort::dataset
