import { QueryClientProvider } from "@tanstack/react-query";
import { createRoot } from "react-dom/client";

import { cache } from "./api/client";
import { Shell } from "./shell";
import "./style/style.css";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no #root");
createRoot(root).render(
  <QueryClientProvider client={cache}>
    <Shell />
  </QueryClientProvider>,
);
