// SPDX-License-Identifier: Apache-2.0
import { createRoot } from "react-dom/client";
import { App } from "./app";
import "./style.css";
import "./plots.css";
import "./contract.css";
import "./inside.css";

const root = document.getElementById("root");
if (root) createRoot(root).render(<App />);
