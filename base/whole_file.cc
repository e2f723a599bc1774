#include "base/whole_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace cohort::base {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDigits = "0123456789", kHexDigits = "0123456789abcdef", kEnd = ".tmp";
constexpr std::size_t kRandomDigits = 8;

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

fs::path temporary_of(const fs::path& path) {
  uint32_t random = 0;
  while (::getrandom(&random, sizeof random, 0) != sizeof random) require(errno == EINTR, "random bytes");
  return path.native() + base::format(".{}-{:08x}{}", getpid(), random, kEnd);
}

bool is_temporary_of(std::string_view name, std::string_view of) {
  if (!name.starts_with(of) || !name.ends_with(kEnd) || name.size() <= of.size() + kEnd.size()) return false;
  name = name.substr(of.size(), name.size() - of.size() - kEnd.size());
  const std::size_t dash = std::min(name.find('-'), name.size() - 1);
  const std::string_view pid = name.substr(1, dash - 1), random = name.substr(dash + 1);
  return name[0] == '.' && !pid.empty() && pid.find_first_not_of(kDigits) == pid.npos &&
         random.size() == kRandomDigits && random.find_first_not_of(kHexDigits) == random.npos;
}

// Removes what writers of `path` that have ended left of it. What cannot be removed stays: it is in nobody's way.
void remove_left(const fs::path& path) {
  std::error_code error;
  for (fs::directory_iterator it(folder_of(path), error); it != fs::directory_iterator(); it.increment(error)) {
    if (!is_temporary_of(it->path().filename().native(), path.filename().native())) continue;
    const FileDescriptor left(::open(it->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (left && ::flock(left.get(), LOCK_EX | LOCK_NB) == 0) fs::remove_all(it->path(), error);
  }
}

// Locks what this process has just made. False when remove_left() of another process came between, and removed it. (A
// file system without locks has none for remove_left() either.)
bool lock_new(const fs::path& name, const FileDescriptor& made) {
  while (::flock(made.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  struct stat of_name {
  }, of_made{};
  return ::lstat(name.c_str(), &of_name) == 0 && ::fstat(made.get(), &of_made) == 0 && of_name.st_ino == of_made.st_ino;
}

// Makes a file or folder under a name that nobody has: make(name) returns its descriptor.
template <typename Make>
std::pair<fs::path, FileDescriptor> make_temporary(const fs::path& path, const char* expected, Make make) {
  remove_left(path);
  while (true) {
    fs::path name = temporary_of(path);
    FileDescriptor made(make(name));
    if (!made && errno != EEXIST) fail_errno(path.string(), expected, errno, "its folder must be there, and writable");
    if (made && lock_new(name, made)) return {std::move(name), std::move(made)};
  }
}

int make_file(const fs::path& name) { return ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666); }

int make_folder(const fs::path& name) {
  if (::mkdir(name.c_str(), 0777) != 0) return -1;
  const int made = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (made < 0 && errno == ENOENT) errno = EEXIST;  // remove_left() of another process was first: another name
  return made;
}

void sync_path(const fs::path& path, int flags) {
  const FileDescriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!opened) fail_errno(path.string(), "a file or folder to bring to disk", errno);
  sync_to_disk(opened, path.string());
}

// All files of a folder, then the folders. False when a stop was asked for.
bool sync_tree(const fs::path& folder, const std::stop_token& stop) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error); it != fs::directory_iterator(); it.increment(error)) {
    if (stop.stop_requested()) return false;
    const fs::file_type type = it->symlink_status(error).type();
    if (type == fs::file_type::directory && !sync_tree(it->path(), stop)) return false;
    if (type == fs::file_type::regular) sync_path(it->path(), O_NOFOLLOW);
  }
  if (error) fail_errno(folder.string(), "a folder that can be read", error.value());
  sync_path(folder, O_DIRECTORY | O_NOFOLLOW);
  return !stop.stop_requested();
}

// Gives `from` the name `to`; with RENAME_EXCHANGE or RENAME_NOREPLACE false where the file system knows neither (NFS).
bool renamed(const fs::path& from, const fs::path& to, unsigned flags = 0) {
  const int failed = flags == 0 ? ::rename(from.c_str(), to.c_str())
                                : ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags);
  if (failed == 0) return true;
  if (flags != 0 && errno == EINVAL) return false;
  fail_errno(to.string(), flags == RENAME_NOREPLACE ? "no file or folder of this name" : "a name that can be given",
             errno);
}

// Puts `folder` in the place of `out`, which gets the name that this returns.
fs::path exchange(const fs::path& folder, const fs::path& out) {
  if (renamed(folder, out, RENAME_EXCHANGE)) return folder;
  fs::path old = folder;
  old.replace_extension(".old");  // if this process is killed here, remove_left() must not know it
  renamed(out, old);
  try {
    renamed(folder, out);
  } catch (...) {
    renamed(old, out);
    throw;
  }
  return old;
}

}  // namespace

WholeFile::WholeFile(fs::path path) : path_(std::move(path)) {
  std::tie(temporary_, file_) = make_temporary(path_, "a file that can be written", make_file);
}

WholeFile::~WholeFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void WholeFile::commit() {
  require(!temporary_.empty(), "a file is committed once");
  sync_to_disk(file_, place());
  file_.close(place());
  renamed(temporary_, path_);
  temporary_.clear();
  sync_path(folder_of(path_), O_DIRECTORY);
}

void write_whole(const fs::path& path, std::span<const std::byte> bytes) {
  WholeFile file(path);
  file.write(bytes);
  file.commit();
}

void write_whole(const fs::path& path, std::string_view text) { write_whole(path, std::as_bytes(std::span(text))); }

WholeFolder::WholeFolder(fs::path out) : out_(std::move(out)) {
  std::error_code error;
  fs::create_directories(folder_of(out_), error);
  if (error) fail_errno(out_.string(), "a folder that can be made", error.value());
  std::tie(temporary_, lock_) = make_temporary(out_, "a folder that can be made", make_folder);
}

WholeFolder::~WholeFolder() { discard(); }

void WholeFolder::discard() noexcept {
  std::error_code error;  // a destructor cannot report; the next writer of the name tries again
  if (!temporary_.empty()) fs::remove_all(temporary_, error);
  temporary_.clear();
}

bool WholeFolder::commit(bool replaces, const std::stop_token& stop) {
  require(!temporary_.empty(), "a folder is committed once");
  if (!sync_tree(temporary_, stop)) return false;
  fs::path old;
  if (replaces) {
    old = exchange(temporary_, out_);
  } else if (!renamed(temporary_, out_, RENAME_NOREPLACE)) {
    renamed(temporary_, out_);  // of folders with something in them none is replaced
  }
  temporary_.clear();
  sync_path(folder_of(out_), O_DIRECTORY);
  std::error_code error;
  if (replaces) fs::remove_all(old, error);
  if (error) fail_errno(old.string(), "a replaced folder that can be removed", error.value());
  return true;
}

}  // namespace cohort::base
