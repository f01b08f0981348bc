// SPDX-License-Identifier: Apache-2.0
import { useEffect, useRef, useState } from "react";

/** For how long the page says that it was copied. */
const SAID_MS = 4_000;

/** A command for a terminal, and a button that copies it; where the browser does not let it, it is selected. */
export function Command({ text }: { text: string }) {
  const [news, setNews] = useState("");
  const code = useRef<HTMLElement>(null);
  useEffect(() => {
    if (news === "") return;
    const timer = window.setTimeout(() => setNews(""), SAID_MS);
    return () => window.clearTimeout(timer);
  }, [news]);
  const select = () => {
    if (code.current) window.getSelection()?.selectAllChildren(code.current);
    setNews("Selected: copy it by your keyboard");
  };
  const copy = () => {
    // Not there on a page that the browser does not take for secure.
    const clipboard = navigator.clipboard as Clipboard | undefined;
    if (!clipboard) return select();
    clipboard.writeText(text).then(() => setNews("Copied"), select);
  };
  return (
    <span className="command">
      <code ref={code}>{text}</code>{" "}
      <button type="button" aria-label={`Copy: ${text}`} onClick={copy}>
        Copy
      </button>{" "}
      <span className="note" role="status">
        {news}
      </span>
    </span>
  );
}
