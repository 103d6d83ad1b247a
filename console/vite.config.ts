import { defineConfig } from "vite";

export default defineConfig({
  base: "/console/",
  build: { target: "es2024", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
});
