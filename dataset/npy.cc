#include "dataset/npy.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "base/file_descriptor.h"
#include "base/format.h"

namespace cohort::dataset {
namespace {

void demand_dtype(const MappedArray& array, const std::vector<DType>& allowed) {
  std::string names;
  for (const DType dtype : allowed) {
    if (dtype == array.dtype()) return;
    names += (names.empty() ? "" : " or ") + std::string(name_of(dtype));
  }
  throw base::Error({array.place(), "dtype " + names, std::string("dtype ") + name_of(array.dtype()),
                     "convert it with array.astype(...), or import the data set again"});
}

void demand_shape(const MappedArray& array, const std::vector<int64_t>& wanted) {
  const auto& shape = array.shape();
  bool fits = shape.size() == wanted.size();
  std::string text;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    fits = fits && (wanted[i] < 0 || wanted[i] == shape[i]);
    text += (i == 0 ? "" : ", ") + (wanted[i] < 0 ? std::string("any") : std::to_string(wanted[i]));
  }
  if (fits) return;
  throw base::Error({array.place(), "shape [" + text + "]", "shape " + shape_text(shape),
                     "this file and the others of its folder do not belong together: import the data set again"});
}

// A new file with its space reserved.
base::Mapping create_file(const std::filesystem::path& path, std::size_t bytes) {
  const base::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) base::fail_errno(path.string(), "a file that can be written", errno);
  // Without reserved space a full disk would end the process with SIGBUS in the middle of a store.
  if (const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    base::fail_errno(path.string(), base::format_bytes(bytes) + " of disk space", error,
                     "free some space or write to another disk");
  }
  return base::Mapping::of(file, bytes, base::Access::kReadWrite, path.string());
}

}  // namespace

MappedArray map_npy(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    throw base::Error({path.string(), "a .npy array", "no such file", "check the path, or import the data set again"});
  }
  base::Mapping mapping = base::Mapping::of(path);
  NpyHeader header = parse_npy_header({mapping.data(), mapping.bytes()}, path.string());
  const std::size_t needed_bytes = header.header_bytes + header.data_bytes();
  if (mapping.bytes() < needed_bytes) {
    throw base::Error({path.string(), base::format("{} bytes for shape {}", needed_bytes, shape_text(header.shape)),
                       base::format("a truncated file of {} bytes", mapping.bytes()),
                       "copy it again, or import the data set again"});
  }
  return {std::move(mapping), std::move(header), path.string()};
}

MappedArray map_npy(const std::filesystem::path& path, const NpyDemand& demand) {
  MappedArray array = map_npy(path);
  demand_dtype(array, demand.dtypes);
  demand_shape(array, demand.shape);
  return array;
}

MappedOutput create_npy(const std::filesystem::path& path, DType dtype, std::vector<int64_t> shape) {
  const std::string text = format_npy_header(dtype, shape);
  NpyHeader header{dtype, std::move(shape), text.size()};
  base::Mapping mapping = create_file(path, text.size() + header.data_bytes());
  std::memcpy(mapping.data(), text.data(), text.size());
  return {std::move(mapping), std::move(header), path.string()};
}

}  // namespace cohort::dataset
