#include "dataset/npy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file_descriptor.h"

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

}  // namespace

FileMapping FileMapping::read(const std::filesystem::path& path) {
  const base::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) base::fail_errno(path.string(), "a readable file", errno, "look at its permissions: ls -l");
  struct stat status {};
  if (fstat(file.get(), &status) != 0) base::fail_errno(path.string(), "a file with a size", errno);
  if (!S_ISREG(status.st_mode)) throw base::Error({path.string(), "a regular file", "something else", ""});
  if (status.st_size == 0) return {};
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) base::fail_errno(path.string(), "a file that can be memory-mapped", errno);
  return {static_cast<std::byte*>(data), bytes};
}

FileMapping FileMapping::create(const std::filesystem::path& path, std::size_t bytes) {
  const base::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) base::fail_errno(path.string(), "a file that can be written", errno);
  // Without reserved space a full disk would end the process with SIGBUS in the middle of a store.
  if (const int error = posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    base::fail_errno(path.string(), base::format_bytes(static_cast<double>(bytes)) + " of disk space", error,
                     "free some space or write to another disk");
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) base::fail_errno(path.string(), "a file that can be memory-mapped", errno);
  return {static_cast<std::byte*>(data), bytes};
}

void FileMapping::release() const noexcept {
  if (data_) madvise(data_, bytes_, MADV_DONTNEED);
}

FileMapping::~FileMapping() {
  if (data_) munmap(data_, bytes_);
}

MappedArray map_npy(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    throw base::Error(
        {path.string(), "a .npy array", "no such file", "look at the path, or import the data set again"});
  }
  FileMapping mapping = FileMapping::read(path);
  NpyHeader header = parse_npy_header({mapping.data(), mapping.bytes()}, path.string());
  const std::size_t needed_bytes = header.header_bytes + header.data_bytes();
  if (mapping.bytes() < needed_bytes) {
    throw base::Error({path.string(), fmt::format("{} bytes for shape {}", needed_bytes, shape_text(header.shape)),
                       fmt::format("a truncated file of {} bytes", mapping.bytes()),
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
  FileMapping mapping = FileMapping::create(path, text.size() + header.data_bytes());
  std::memcpy(mapping.data(), text.data(), text.size());
  return {std::move(mapping), std::move(header), path.string()};
}

}  // namespace cohort::dataset
