// SPDX-License-Identifier: Apache-2.0
#include "cli_upload.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <future>
#include <map>
#include <utility>

#include "cli_ignore.h"
#include "cli_print.h"
#include <sys/stat.h>
#include <unistd.h>

#include "base/crypto.h"
#include "io/real_fs.h"
#include "model/archive_begin.h"

namespace rn::cli {

namespace {

constexpr std::size_t kUploadsAtOnce = 8;
constexpr std::size_t kLeftOutCountedMax = 200'000;  ///< entries: counting is not to delay the job
constexpr std::size_t kDigestsPerQuestion = 5'000;

/// Where a blob's bytes lie.
struct Piece {
  std::string path;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

std::string megabytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / 1048576.0);
  return text;
}

Error unreadable(const Error& error, const std::string& path) {
  return error.with(path + " cannot be read")
      .hinting("make it readable, or name it in .reclaimignore");
}

class Scanner {
 public:
  Scanner(
      std::string root,
      FolderScan& out,
      bool is_choosy = true,
      std::size_t entries_max = kUploadEntriesMax
  )
      : root_(std::move(root)), out_(out), is_choosy_(is_choosy), entries_max_(entries_max) {}

  Status scan(const std::string& folder) {
    if (is_choosy_) read_ignore_file(folder, ".gitignore");
    if (is_choosy_) read_ignore_file(folder, ".reclaimignore");
    const auto names = fs_.list(folder.empty() ? root_ : join_path(root_, folder));
    if (!names) return fail(unreadable(names.error(), folder.empty() ? root_ : folder));
    for (const std::string& name : *names) {
      RN_CHECK(take(folder.empty() ? name : folder + "/" + name));
      // What nobody wants to send is not read to its end either.
      if (out_.listing.files.size() > entries_max_)
        return fail(too_many_files(out_.listing, entries_max_));
    }
    return {};
  }

 private:
  void read_ignore_file(const std::string& folder, const std::string& name) {
    const std::string path = join_path(folder.empty() ? root_ : join_path(root_, folder), name);
    const auto text = read_all(fs_, path, 1 << 20);
    if (!text || text->empty()) return;
    rules_.add(folder, std::string(as_text(*text)));
    out_.ignore_files.insert(name);
  }

  Status take(const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    if (name == ".git" || name == ".reclaim" || name == "__pycache__") return {};
    const auto there = fs_.stat(join_path(root_, path));
    if (!there) return {};  // went away meanwhile
    const bool is_folder = there->kind == FileStat::Kind::kDirectory;
    if (rules_.ignores(path, is_folder)) {
      out_.left_out.push_back(is_folder ? path + "/" : path);
      count_left_out(path, *there);
      return {};
    }
    ListedFile file;
    file.path = path;
    file.mode = there->mode;
    if (is_folder) {
      file.kind = FileKind::kFolder;
      out_.listing.files.push_back(std::move(file));
      return scan(path);
    }
    if (there->kind == FileStat::Kind::kSymlink) {
      file.kind = FileKind::kSymlink;
      RN_TRY(file.target, fs_.read_symlink(join_path(root_, path)));
      out_.listing.files.push_back(std::move(file));
      return {};
    }
    if (there->kind != FileStat::Kind::kRegular) return {};
    file.bytes = there->size;
    out_.bytes += file.bytes;
    out_.listing.files.push_back(std::move(file));
    return {};
  }

  void count_left_out(const std::string& path, const FileStat& there) {
    LeftOutSize& size = out_.left_out_size;
    if (there.kind != FileStat::Kind::kDirectory) {
      ++size.files;
      if (there.kind == FileStat::Kind::kRegular) size.bytes += there.size;
      return;
    }
    const auto names = fs_.list(join_path(root_, path));
    if (!names) size.is_at_least = true;
    if (!names) return;
    for (const std::string& name : *names) {
      if (++counted_ > kLeftOutCountedMax) size.is_at_least = true;
      if (counted_ > kLeftOutCountedMax) return;
      const std::string below = path + "/" + name;
      if (const auto one = fs_.stat(join_path(root_, below))) count_left_out(below, *one);
    }
  }

  io::RealFileSystem fs_;
  std::string root_;
  FolderScan& out_;
  bool is_choosy_;  ///< goes by ignore files
  std::size_t entries_max_;
  std::size_t counted_ = 0;
  IgnoreRules rules_;
};

Error too_big(const FolderScan& scan, std::uint64_t limit) {
  std::vector<const ListedFile*> files;
  for (const ListedFile& file : scan.listing.files) files.push_back(&file);
  std::sort(files.begin(), files.end(), [](const auto* a, const auto* b) {
    return a->bytes > b->bytes;
  });
  std::string biggest;
  for (std::size_t i = 0; i < std::min<std::size_t>(5, files.size()); ++i)
    biggest += "\n  " + megabytes(files[i]->bytes) + "  " + files[i]->path;
  return {
      ErrorCode::kExhausted,
      "the folder has " + megabytes(scan.bytes) + " in " + std::to_string(files.size()) +
          " files and folders, more than the limit of " + megabytes(limit) +
          "; its biggest files:" + biggest,
      "leave files out with .reclaimignore, or raise the limit with --max-upload-mib"};
}

/// One of the files and folders that are named one by one.
Status take_input(
    const InputFile& input, std::map<std::string, ListedFile>& files, FileSource& source
) {
  constexpr const char* kNext = "name a file that is there; docs/htcondor-files.md says where from";
  std::error_code failed;
  const std::string from = std::filesystem::canonical(input.from, failed).string();
  if (failed) return fail(ErrorCode::kNotFound, "there is no file " + input.from, kNext);
  const auto put = [&](const std::string& path, const std::string& here, ListedFile file) {
    file.path = path;
    files[path] = std::move(file);
    source.elsewhere[path] = here;
  };
  io::RealFileSystem fs;
  RN_TRY(const FileStat there, fs.stat(from));
  ListedFile whole;
  whole.mode = input.is_program ? there.mode | 0755 : there.mode;
  if (there.kind == FileStat::Kind::kRegular && !input.as.empty()) {
    whole.bytes = there.size;
    put(input.as, from, std::move(whole));
    return {};
  }
  if (there.kind != FileStat::Kind::kDirectory || input.is_program)
    return fail(ErrorCode::kInvalid, input.from + " is not a regular file", kNext);
  FolderScan below;
  RN_CHECK(Scanner(from, below, false).scan(""));
  if (!input.as.empty()) {
    whole.kind = FileKind::kFolder;
    put(input.as, from, std::move(whole));
  }
  for (const ListedFile& file : below.listing.files)
    put(input.as.empty() ? file.path : input.as + "/" + file.path, join_path(from, file.path), file
    );
  return {};
}

/// All pieces by name; equal contents are sent once.
std::map<Digest, Piece> pieces_of(const FileSource& source, const Listing& listing) {
  std::map<Digest, Piece> pieces;
  for (const ListedFile& file : listing.files) {
    std::uint64_t offset = 0;
    for (const Digest& blob : file.blobs) {
      const std::uint64_t bytes = std::min<std::uint64_t>(kPieceBytes, file.bytes - offset);
      pieces.emplace(blob, Piece{source.path_of(file.path), offset, bytes});
      offset += bytes;
    }
  }
  return pieces;
}

Result<std::vector<Digest>> ask_missing(
    const Client& client, const std::map<Digest, Piece>& pieces
) {
  std::vector<Digest> missing;
  api::BlobQuery query;
  const auto ask = [&]() -> Status {
    RN_TRY(
        const auto answer,
        client.send_as<api::BlobMissing>("POST", "/v1/blobs/missing", to_json(query))
    );
    missing.insert(missing.end(), answer.missing.begin(), answer.missing.end());
    query.digests.clear();
    return {};
  };
  for (const auto& [name, piece] : pieces) {
    query.digests.push_back(name);
    if (query.digests.size() == kDigestsPerQuestion) RN_CHECK(ask());
  }
  if (!query.digests.empty()) RN_CHECK(ask());
  return missing;
}

/// SHA-256 of a whole file; read by itself, beside the hashing of its pieces.
Result<Digest> digest_of(const std::string& path) {
  io::RealFileSystem fs;
  RN_TRY(const auto file, fs.open(path));
  crypto::Sha256 hash;
  std::uint64_t offset = 0;
  while (true) {
    RN_TRY(const Blob bytes, file->read(offset, kPieceBytes));
    if (bytes.empty()) return hash.finish();
    hash.update(bytes);
    offset += bytes.size();
  }
}

Status upload_pieces(
    const Client& client, const std::map<Digest, Piece>& pieces, const std::string& what
) {
  RN_TRY(const auto missing, ask_missing(client, pieces));
  if (missing.empty()) return {};
  std::uint64_t total = 0;
  for (const Digest& name : missing) total += pieces.at(name).bytes;
  Progress progress("uploading " + what, total);
  io::RealFileSystem fs;
  std::size_t next_piece = 0;
  const auto next = [&](io::HttpCall& call, std::uint64_t& tag) -> Result<bool> {
    if (next_piece == missing.size()) return false;
    tag = next_piece;
    const Digest& name = missing[next_piece++];
    const Piece& piece = pieces.at(name);
    RN_TRY(const auto file, fs.open(piece.path));
    RN_TRY(const Blob bytes, file->read(piece.offset, piece.bytes));
    call = client.call("PUT", "/v1/blobs/" + to_hex(name), std::string(as_text(bytes)));
    call.timeout = seconds(300);
    return true;
  };
  const auto done = [&](std::uint64_t tag, const io::HttpReply&) -> Status {
    progress.advance(pieces.at(missing[tag]).bytes);
    return {};
  };
  const Status sent = perform_many(kUploadsAtOnce, next, done);
  if (!sent)
    return fail(with_next_step(sent.error().with("uploading " + what), client.login().url));
  return {};
}

}  // namespace

std::string FileSource::path_of(const std::string& listed) const {
  const auto found = elsewhere.find(listed);
  return found == elsewhere.end() ? join_path(folder, listed) : found->second;
}

Result<FolderScan> scan_folder(
    const std::string& folder, std::uint64_t limit, std::size_t entries_max
) {
  FolderScan scan;
  scan.source.folder = folder;
  RN_CHECK(Scanner(folder, scan, true, entries_max).scan(""));
  std::sort(
      scan.listing.files.begin(),
      scan.listing.files.end(),
      [](const ListedFile& a, const ListedFile& b) { return a.path < b.path; }
  );
  if (scan.bytes > limit) return fail(too_big(scan, limit));
  return scan;
}

Result<FolderScan> scan_inputs(const std::vector<InputFile>& inputs, std::uint64_t limit) {
  FolderScan scan;
  std::map<std::string, ListedFile> files;
  for (const InputFile& input : inputs) RN_CHECK(take_input(input, files, scan.source));
  for (auto& [path, file] : files) {
    scan.bytes += file.bytes;
    scan.listing.files.push_back(std::move(file));
  }
  if (scan.bytes > limit) return fail(too_big(scan, limit));
  return scan;
}

std::string words_of_left_out(const FolderScan& scan) {
  constexpr std::size_t kNamed = 5;
  if (scan.left_out.empty()) return {};
  std::string text = "not uploaded, by ";
  const char* between = "";
  for (const std::string& name : scan.ignore_files) text += std::exchange(between, " and ") + name;
  text += ": ";
  for (std::size_t i = 0; i < std::min(kNamed, scan.left_out.size()); ++i)
    text += (i == 0 ? "" : ", ") + scan.left_out[i];
  if (scan.left_out.size() > kNamed)
    text += " and " + std::to_string(scan.left_out.size() - kNamed) + " more";
  const LeftOutSize& size = scan.left_out_size;
  text += std::string(" (") + (size.is_at_least ? "at least " : "") + std::to_string(size.files) +
          (size.files == 1 ? " file, " : " files, ") + human_bytes(size.bytes) + ")";
  return text + "; a line !NAME in .reclaimignore takes NAME along";
}

Status hash_files(const FileSource& source, Listing& listing) {
  io::RealFileSystem fs;
  for (ListedFile& file : listing.files) {
    file.blobs.clear();
    if (file.kind != FileKind::kRegular) continue;
    const auto open = fs.open(source.path_of(file.path));
    if (!open) return fail(unreadable(open.error(), file.path));
    std::uint64_t offset = 0;
    while (true) {
      RN_TRY(const Blob bytes, (*open)->read(offset, kPieceBytes));
      if (bytes.empty()) break;
      file.blobs.push_back(crypto::sha256(bytes));
      offset += bytes.size();
      if (bytes.size() < kPieceBytes) break;
    }
    if (offset != file.bytes) {
      return fail(
          ErrorCode::kConflict,
          file.path + " changed while it was read",
          "wait until nobody writes to it, or leave it out with .reclaimignore"
      );
    }
  }
  return {};
}

Result<Digest> upload_folder(
    const Client& client, const FileSource& source, const Listing& listing
) {
  const Blob body = to_cbor(listing);
  if (body.size() > kPieceBytes) {
    return fail(
        ErrorCode::kExhausted,
        "the folder has too many files: the list of its " + std::to_string(listing.files.size()) +
            " names has " + std::to_string(body.size() >> 10) + " KiB, at most " +
            std::to_string(kPieceBytes >> 10) + " go",
        "leave folders out with .reclaimignore, or pack many small files into one archive"
    );
  }
  RN_CHECK(upload_pieces(client, pieces_of(source, listing), "the folder"));
  const Digest name = crypto::sha256(body);
  RN_CHECK(client.send("PUT", "/v1/blobs/" + to_hex(name), std::string(as_text(body))));
  return name;
}

Result<Image> add_image(
    const Client& client,
    const std::string& name,
    const std::string& archive,
    const std::string& base
) {
  io::RealFileSystem fs;
  constexpr const char* kNext = "give the path of a 'docker save' or rootfs archive";
  std::error_code ignored;
  const auto there = std::filesystem::status(archive, ignored);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    return fail(
        ErrorCode::kInvalid,
        archive +
            (std::filesystem::is_directory(there) ? " is a folder" : " is not a regular file"),
        kNext
    );
  const auto file = fs.open(archive);
  if (!file) return fail(file.error().hinting(kNext));
  RN_TRY(const Blob begin, (*file)->read(0, kArchiveBegin));
  if (!may_be_archive(begin))
    return fail(ErrorCode::kInvalid, archive + " is no archive of an image", kWhatIsAnArchive);
  auto digest = std::async(std::launch::async, [&archive] { return digest_of(archive); });
  api::ImageRequest request;
  request.name = name;
  request.base = base;
  std::map<Digest, Piece> pieces;
  while (true) {
    RN_TRY(const Blob bytes, (*file)->read(request.bytes, kPieceBytes));
    if (bytes.empty()) break;
    const Digest piece = crypto::sha256(bytes);
    request.blobs.push_back(piece);
    pieces.emplace(piece, Piece{archive, request.bytes, bytes.size()});
    request.bytes += bytes.size();
  }
  RN_TRY(const Digest whole, digest.get());
  request.digest = "sha256:" + to_hex(whole);
  RN_CHECK(upload_pieces(client, pieces, "the image"));
  io::HttpCall call = client.call("POST", "/v1/images", to_json(request));
  call.timeout = seconds(600);  // the coordinator reads the whole archive
  const auto reply = io::succeed(io::perform_blocking(call));
  if (!reply) return fail(with_next_step(reply.error(), client.login().url));
  return from_json<Image>(reply->body, Unknown::kLenient);
}

namespace {

bool runs_python(const std::vector<std::string>& command) {
  return std::any_of(command.begin(), command.end(), [](const std::string& word) {
    return word.find(".py") != std::string::npos || word == "-m";
  });
}

/// True if a Python file of the folder contains one of the words.
bool any_script_says(
    const FileSource& source, const Listing& listing, const std::vector<std::string_view>& words
) {
  io::RealFileSystem fs;
  return std::any_of(listing.files.begin(), listing.files.end(), [&](const ListedFile& file) {
    if (file.kind != FileKind::kRegular || !file.path.ends_with(".py") || file.bytes > (4u << 20))
      return false;
    const auto bytes = read_all(fs, source.path_of(file.path), 4 << 20);
    if (!bytes) return false;
    const std::string_view text = as_text(*bytes);
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
      return text.find(word) != std::string_view::npos;
    });
  });
}

}  // namespace

bool seems_to_save(
    const FileSource& source, const Listing& listing, const std::vector<std::string>& command
) {
  if (!runs_python(command)) return true;
  return any_script_says(
      source,
      listing,
      {"torch.save",
       "save_pretrained",
       "save_checkpoint",
       "ModelCheckpoint",
       "state_dict",
       "checkpoint",
       "Checkpoint",
       "pickle.dump",
       "joblib.dump",
       "np.save",
       "save_weights",
       ".savez",
       "Trainer(",
       "safetensors",
       ".ckpt",
       ".pth",
       ".pt\"",
       ".pt'"}
  );
}

bool seems_to_resume(
    const FileSource& source, const Listing& listing, const std::vector<std::string>& command
) {
  if (!runs_python(command)) return true;
  return any_script_says(
      source,
      listing,
      {"load_state_dict",
       "torch.load",
       "load_checkpoint",
       "load_model",
       "load_weights",
       "load_file",
       "safe_open",
       "from_pretrained",
       "pickle.load",
       "joblib.load",
       "np.load",
       "numpy.load",
       "resume",
       "RESUME",
       "restore",
       "Trainer(",
       "heckpoint"}
  );
}

}  // namespace rn::cli
