// SPDX-License-Identifier: Apache-2.0
import { defineConfig } from "vite";

// One folder without folders inside, because the coordinator serves /ui/FILE; nothing is inlined, because its policy
// allows no code and no style in a page.
export default defineConfig({
  base: "/ui/",
  publicDir: false,
  build: {
    target: "es2022",
    assetsDir: "",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 400,
    reportCompressedSize: false,
  },
  // `npm run dev` beside a coordinator of one's own: RN_URL=https://127.0.0.1:7443
  server: {
    proxy: { "^/(v1|version|readyz|healthz)": { target: "https://127.0.0.1:7443", secure: false } },
  },
});
