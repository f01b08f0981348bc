// SPDX-License-Identifier: Apache-2.0
// node embed.mjs FOLDER FILE.cc: the built files of FOLDER as C++ constants (coordinator/dashboard.h), plain and
// compressed. Prints how much that is.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const TYPES = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
};

/** A C++ string literal for any bytes, in pieces of one line each. */
function literal(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 4096) {
    let text = "";
    for (const byte of bytes.subarray(at, at + 4096)) {
      const isPlain = byte >= 0x20 && byte < 0x7f && byte !== 0x22 && byte !== 0x5c && byte !== 0x3f;
      text += isPlain ? String.fromCharCode(byte) : `\\${byte.toString(8).padStart(3, "0")}`;
    }
    lines.push(`"${text}"`);
  }
  return lines.join("\n");
}

const [folder, out] = process.argv.slice(2);
const files = readdirSync(folder).sort();
if (!files.includes("index.html")) throw new Error(`${folder} has no index.html`);
let plainBytes = 0;
let sentBytes = 0;
const rows = files.map((name) => {
  const type = TYPES[name.slice(name.lastIndexOf("."))];
  if (!type) throw new Error(`${name}: a type that the dashboard does not serve`);
  const plain = readFileSync(join(folder, name));
  const packed = gzipSync(plain, { level: 9 });
  const gzip = packed.length < plain.length ? packed : Buffer.alloc(0);
  plainBytes += plain.length;
  sentBytes += gzip.length || plain.length;
  const hash = createHash("sha256").update(plain).digest("hex").slice(0, 32);
  const bytes = (data) => `{${literal(data) || '""'}, ${data.length}}`;
  return `{"${name}", "${type}", "${hash}", ${bytes(plain)}, ${bytes(gzip)}, ${name !== "index.html"}}`;
});
writeFileSync(
  out,
  `// Made by web/embed.mjs.
#include "dashboard_files.h"

#include <array>

namespace rn::coordinator {

std::span<const DashboardFile> dashboard_files() {
  static constexpr std::array<DashboardFile, ${rows.length}> kFiles = {
DashboardFile${rows.join(",\nDashboardFile")}};
  return kFiles;
}

}  // namespace rn::coordinator
`,
);
console.log(`dashboard: ${rows.length} files, ${plainBytes} bytes, ${sentBytes} bytes compressed`);
