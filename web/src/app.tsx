// SPDX-License-Identifier: Apache-2.0
import { useCallback, useEffect, useRef, useState } from "react";
import { Api, Refused } from "./api";
import { Login } from "./login";
import { Operator } from "./operator";
import { Owner } from "./owner";
import { useNow } from "./parts";
import { forgetToken, savedToken, saveToken } from "./session";
import { Site, useSite } from "./site";
import { Student } from "./student";
import { LinkState } from "./stream";
import { Role, Whoami } from "./types";
import { clock } from "./words";

type Page = "machines" | "jobs" | "site";

const PAGES: { page: Page; title: string; roles: Role[] }[] = [
  { page: "machines", title: "My machines", roles: ["owner", "admin"] },
  { page: "jobs", title: "My jobs", roles: ["viewer", "user", "owner", "admin"] },
  { page: "site", title: "Site", roles: ["viewer", "user", "owner", "admin"] },
];

const FIRST_PAGE: Record<Role, Page> = { viewer: "jobs", user: "jobs", owner: "machines", admin: "site" };

interface Place {
  page: Page;
  detail: string;
}

function placeOf(hash: string, role: Role): Place {
  const [, page = "", detail = ""] = hash.split("/");
  const known = PAGES.find((one) => one.page === page && one.roles.includes(role));
  return known ? { page: known.page, detail: decodeURIComponent(detail) } : { page: FIRST_PAGE[role], detail: "" };
}

function usePlace(role: Role): Place {
  const [place, setPlace] = useState(() => placeOf(location.hash, role));
  useEffect(() => {
    const onChange = () => setPlace(placeOf(location.hash, role));
    window.addEventListener("hashchange", onChange);
    return () => window.removeEventListener("hashchange", onChange);
  }, [role]);
  return place;
}

function Link({ link, onRetry }: { link: LinkState; onRetry: () => void }) {
  const now = useNow(1_000);
  if (link.kind === "lost") {
    const seconds = Math.max(0, Math.ceil((link.retryAt - now) / 1_000));
    return (
      <div className="lost">
        <p role="alert">
          <strong>Connection lost</strong> at {clock(link.since)}: {link.why}. What you see is as of then.
        </p>
        <p>
          <span aria-hidden="true">Next try {seconds > 0 ? `in ${seconds} s` : "now"}. </span>
          <button type="button" onClick={onRetry}>
            Try now
          </button>
        </p>
      </div>
    );
  }
  return (
    <p className={`link ${link.kind}`} role="status">
      {link.kind === "live" ? "Live" : "Connecting…"}
    </p>
  );
}

function Shell({ site, onOut }: { site: Site; onOut: () => void }) {
  const state = useSite(site);
  const { page, detail } = usePlace(state.who.role);
  const main = useRef<HTMLElement>(null);
  const title = PAGES.find((one) => one.page === page)?.title ?? "";
  useEffect(() => {
    document.title = `${title} – ReclaimNet`;
  }, [title]);
  return (
    <>
      <a
        className="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        To the content
      </a>
      <header className="top">
        <span className="brand">ReclaimNet</span>
        <nav aria-label="Views">
          {PAGES.filter((one) => one.roles.includes(state.who.role)).map((one) => (
            <a key={one.page} href={`#/${one.page}`} aria-current={one.page === page ? "page" : undefined}>
              {one.title}
            </a>
          ))}
        </nav>
        <div className="who">
          <span>
            {state.who.user}{" "}
            <span className="note">
              ({state.who.role}, {state.who.lab})
            </span>
          </span>
          <button type="button" onClick={onOut}>
            Log out
          </button>
        </div>
      </header>
      <div className="bar">
        <Link link={state.link} onRetry={site.reconnect} />
      </div>
      {state.trouble && state.link.kind === "live" ? (
        <p className="alert" role="alert">
          Something could not be loaded: {state.trouble}
        </p>
      ) : null}
      <main id="main" ref={main} tabIndex={-1}>
        <h1>{title}</h1>
        {!state.isLoaded ? (
          <p role="status">Loading…</p>
        ) : page === "machines" ? (
          <Owner site={site} state={state} />
        ) : page === "jobs" ? (
          <Student site={site} state={state} detail={detail} />
        ) : (
          <Operator site={site} state={state} />
        )}
      </main>
      <footer>ReclaimNet {state.version}</footer>
    </>
  );
}

export function App() {
  const [site, setSite] = useState<Site | null>(null);
  const [reason, setReason] = useState("");
  const [isAsking, setAsking] = useState(savedToken() !== "");

  const leave = useCallback((words: string) => {
    forgetToken();
    setReason(words);
    setAsking(false);
    setSite((old) => {
      old?.close();
      return null;
    });
  }, []);

  const enter = useCallback(
    (token: string, who: Whoami) => {
      saveToken(token);
      setReason("");
      setAsking(false);
      setSite(new Site(new Api(token), who, leave));
    },
    [leave],
  );

  // After a reload the window still has its token; a coordinator that is away is waited for.
  useEffect(() => {
    if (!isAsking) return;
    let isWanted = true;
    const ask = () => {
      const token = savedToken();
      new Api(token).get<Whoami>("/v1/whoami").then(
        (who) => isWanted && enter(token, who),
        (error: unknown) => {
          if (!isWanted) return;
          if (error instanceof Refused && error.isAboutToken) leave(error.message);
          else window.setTimeout(ask, 2_000);
        },
      );
    };
    ask();
    return () => {
      isWanted = false;
    };
  }, [isAsking, enter, leave]);

  if (site) return <Shell site={site} onOut={() => leave("")} />;
  if (isAsking)
    return (
      <main className="login">
        <h1>ReclaimNet</h1>
        <p role="status">Asking the coordinator…</p>
      </main>
    );
  return <Login reason={reason} onIn={enter} />;
}
