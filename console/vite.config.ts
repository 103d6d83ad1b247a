import { defineConfig } from "vite";

export default defineConfig({
  base: "/console/",
  build: { target: "es2024", assetsInlineLimit: 0, license: { fileName: "licences.md" }, modulePreload: { polyfill: false } },
});
