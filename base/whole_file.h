// Files and folders that appear whole or not at all, also when the process is killed or the machine loses power.
//
// Each is written as NAME.PID-RANDOM.tmp beside the place it takes in the end, locked (flock) by its writer. The next
// writer of the same name removes such files and folders whose lock can be had: the process that made them has ended.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string_view>

#include "base/file_descriptor.h"

namespace cohort::base {

// A file, or a symbolic link, that has the name is replaced by commit(); a link's target stays as it is.
class WholeFile {
 public:
  explicit WholeFile(std::filesystem::path path);
  ~WholeFile();  // without commit(): removes what was written
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  const FileDescriptor& file() const noexcept { return file_; }  // to be read and written
  // For messages.
  const std::string& place() const noexcept { return path_.native(); }
  // Appends. Throws Error, as when the disk is full.
  void write(std::span<const std::byte> bytes) { write_all(file_, bytes, place()); }
  // Gives the file its name, once all of it is on disk. Throws Error when a write has failed.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty after commit
  FileDescriptor file_;
};

// Writes a file at once.
void write_whole(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_whole(const std::filesystem::path& path, std::string_view text);

// A folder to be filled under path().
class WholeFolder {
 public:
  explicit WholeFolder(std::filesystem::path out);  // makes the folders above it
  ~WholeFolder();                                   // without commit(): removes what was written
  WholeFolder(const WholeFolder&) = delete;
  WholeFolder& operator=(const WholeFolder&) = delete;

  const std::filesystem::path& path() const noexcept { return temporary_; }  // empty after commit and discard
  const std::filesystem::path& out() const noexcept { return out_; }
  // Puts the folder in its place once all in it is on disk; what `replaces` stood there is removed.
  // False when a stop was asked for before that. Throws Error when a write has failed, or, unless it `replaces`, when
  // something stands there.
  [[nodiscard]] bool commit(bool replaces, const std::stop_token& stop = {});
  void discard() noexcept;

 private:
  std::filesystem::path out_;
  std::filesystem::path temporary_;
  FileDescriptor lock_;
};

}  // namespace cohort::base
