// SPDX-License-Identifier: Apache-2.0
// What a container engine answers, which may be the owner's own and not ours. The first byte says
// what it was asked; the rest is the body of each of its answers.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/scratch_folder.h"
#include "model/codec.h"
#include "warden/engine.h"

namespace {

using namespace rn::warden;

const std::string kDigest = "sha256:" + std::string(64, 'a');

/// Answers every request on its socket with the same body.
class AnsweringEngine {
 public:
  AnsweringEngine() : path_(folder_.path() + "/engine.sock") {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RN_ASSERT(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "bound");
    RN_ASSERT(listen(listener_, 16) == 0, "listening");
    thread_ = std::thread([this] { serve(); });
  }

  AnsweringEngine(const AnsweringEngine&) = delete;
  AnsweringEngine& operator=(const AnsweringEngine&) = delete;

  ~AnsweringEngine() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  const std::string& path() const { return path_; }

  void say(const std::string& body) {
    const std::lock_guard lock(mutex_);
    answer_ =
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body;
  }

 private:
  void serve() {
    for (;;) {
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      std::array<char, 4096> request{};
      (void)!recv(client, request.data(), request.size(), 0);
      std::string answer;
      {
        const std::lock_guard lock(mutex_);
        answer = answer_;
      }
      (void)!send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      shutdown(client, SHUT_WR);
      while (recv(client, request.data(), request.size(), 0) > 0) {
      }
      close(client);
    }
  }

  rn::ScratchFolder folder_;
  std::string path_;
  int listener_ = -1;
  std::mutex mutex_;  ///< guards answer_
  std::string answer_;
  std::thread thread_;
};

template <class T>
void check_refusal(const rn::Result<T>& result) {
  RN_ASSERT(result || !result.error().message.empty(), "a refusal says why");
}

/// A number that does not fit is none, and not another one.
std::int64_t fitting(const nlohmann::json& document, const char* key) {
  if (!document.is_object() || !document.contains("State")) return 0;
  const auto& state = document["State"];
  if (!state.is_object() || !state.contains(key) || !state[key].is_number_integer()) return 0;
  return std::abs(state[key].get<double>()) <= INT32_MAX ? state[key].get<std::int64_t>() : 0;
}

void check_container(const Engine& engine, const std::string& body) {
  const auto container = engine.inspect("c");
  check_refusal(container);
  const auto document = rn::parse_json(body);
  RN_ASSERT(container.has_value() == document.has_value(), "what is no JSON is no container");
  if (!container) return;
  RN_ASSERT(container->pid == fitting(*document, "Pid"), "its pid or none");
  RN_ASSERT(container->exit_code == fitting(*document, "ExitCode"), "its code or none");
}

void check_images(const Engine& engine) {
  const auto images = engine.images();
  check_refusal(images);
  if (!images) return;
  for (const EngineImage& image : *images)
    RN_ASSERT(rn::digest_from_hex(image.digest.substr(7)).has_value(), "names of ours alone");
}

/// The smallest archive that is a saved image: one document for everything.
rn::Result<rn::Blob> saved_image(std::uint64_t offset, std::size_t max) {
  static const std::string kTar = [] {
    const std::string list = R"([{"Config":"manifest.json","Layers":["manifest.json"]}])";
    const rn::Blob header = tar_header("manifest.json", list.size());
    return std::string(header.begin(), header.end()) + list;
  }();
  const std::string piece = kTar.substr(std::min<std::size_t>(offset, kTar.size()), max);
  return rn::Blob(piece.begin(), piece.end());
}

void ask(const Engine& engine, std::uint8_t what, const std::string& body) {
  switch (what % 8) {
    case 0:
      return check_container(engine, body);
    case 1:
      return check_refusal(engine.list("label", "value"));
    case 2:
      return check_images(engine);
    case 3:
      return check_refusal(engine.remove_image(kDigest));
    case 4:
      return check_refusal(engine.facts());
    case 5:
      RN_ASSERT(
          !engine.load_image(kDigest, {rn::Digest{}}, saved_image), "its hash is another one"
      );
      break;
    case 6:
      RN_ASSERT(!engine.import_image(kDigest, saved_image), "its hash is another one");
      break;
    default:
      check_refusal(engine.create("name", "{}"));
      check_refusal(engine.wait("c", rn::seconds(1)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static AnsweringEngine answering;
  static const Engine engine(answering.path(), "lab");
  if (size == 0 || size > 4096) return 0;  // a list asks once more for each that it names
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  answering.say(body);
  ask(engine, data[0], body);
  return 0;
}
