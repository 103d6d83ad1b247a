/** The frame of all pages: login, the bar, and which page stands at which address. */

import { Component, lazy, Suspense, useEffect, useRef, useState, type ComponentType, type ReactNode } from "react";
import { Link, Route, Switch, useLocation } from "wouter";

import { api, cache, fetcher, problemOf, type Schema } from "./api/client";
import { codeOfAddress, keep, token } from "./api/session";
import { Inbox, useInterrupts } from "./pages/inbox";
import { Card, Empty, Heading, Loaded, Loading, ProblemCard } from "./parts/basics";
import { CallerContext, For } from "./parts/caller";
import { texts } from "./texts";

/** `scopes` are those of which a page needs one. */
const PAGES: { path: string; page: ComponentType; title?: string; scopes?: Schema<"Scope">[] }[] = [
  { path: "/", title: texts.nav.inbox, scopes: ["run"], page: Inbox },
  { path: "/ask", title: texts.nav.ask, scopes: ["run"], page: lazy(() => import("./pages/ask")) },
  { path: "/runs", title: texts.nav.runs, scopes: ["run"], page: lazy(() => import("./pages/runs")) },
  { path: "/runs/:id", title: texts.nav.runs, scopes: ["run"], page: lazy(() => import("./pages/run")) },
  { path: "/runs/:id/with/:other", title: texts.nav.runs, scopes: ["run"], page: lazy(() => import("./pages/comparison")) },
  { path: "/threads", title: texts.nav.threads, scopes: ["run"], page: lazy(() => import("./pages/threads")) },
  { path: "/threads/:id", title: texts.nav.threads, scopes: ["run"], page: lazy(() => import("./pages/thread")) },
  { path: "/registry", title: texts.nav.registry, scopes: ["admin"], page: lazy(() => import("./pages/registry")) },
  { path: "/servers/:name", title: texts.nav.registry, scopes: ["admin"], page: lazy(() => import("./pages/server")) },
  { path: "/teams", title: texts.nav.teams, scopes: ["admin", "teams"], page: lazy(() => import("./pages/teams")) },
  { path: "/teams/:name", title: texts.nav.teams, scopes: ["admin", "teams"], page: lazy(() => import("./pages/team")) },
  { path: "/skills", title: texts.nav.skills, scopes: ["run"], page: lazy(() => import("./pages/skills")) },
  { path: "/access", page: lazy(() => import("./pages/access")) },
];

const BAR: [path: string, text: string][] = [
  ["/", texts.nav.inbox],
  ["/ask", texts.nav.ask],
  ["/runs", texts.nav.runs],
  ["/threads", texts.nav.threads],
  ["/registry", texts.nav.registry],
  ["/teams", texts.nav.teams],
  ["/skills", texts.nav.skills],
  ["/access", texts.nav.access],
];

export function Shell() {
  const [refused, setRefused] = useState("");
  const [exchanged, setExchanged] = useState(false);
  useEffect(() => {
    const code = codeOfAddress();
    if (code === null) return setExchanged(true);
    keep(null);
    void fetcher.POST("/v1/console/sessions", { body: { code } }).then(({ data }) => {
      if (data) keep(data.token);
      else setRefused(texts.session.code);
      setExchanged(true);
    });
  }, []);
  return exchanged ? <Session refused={refused} /> : <Loading />;
}

function Session({ refused }: { refused: string }) {
  const session = api.useQuery("get", "/v1/console/session", {}, { refetchInterval: 60_000 });
  const status = session.error ? problemOf(session.error).status : 0;
  if (refused !== "" || status === 401 || status === 403) {
    return <Login reason={refused || (token() === null ? "" : texts.session.ended)} />;
  }
  return (
    <Loaded of={session}>
      {(caller) => (
        <CallerContext value={caller}>
          <a className="skip" href="#page">{texts.skip}</a>
          <Bar who={caller.name || (caller.on_host ? texts.session.host : texts.session.local)} />
          <main id="page" tabIndex={-1}>
            <Pages />
          </main>
        </CallerContext>
      )}
    </Loaded>
  );
}

function Bar({ who }: { who: string }) {
  const [location] = useLocation();
  const waiting = useInterrupts().data?.interrupts.length ?? 0;
  return (
    <header className="bar">
      <Link href="/" className="brand">
        <img src="/console/star.svg" alt="" width="24" height="24" /> {texts.name}
      </Link>
      <nav aria-label={texts.nav.label}>
        {BAR.map(([path, text]) => {
          const here = path === "/" ? location === "/" : location.startsWith(path);
          return (
            <Link key={path} href={path} aria-current={here ? "page" : undefined}>
              {text} {path === "/" && waiting > 0 ? <span className="count">{waiting}</span> : null}
            </Link>
          );
        })}
      </nav>
      <span className="faint who">{who}</span>
      {token() === null ? null : <button onClick={() => enter(null)}>{texts.session.leave}</button>}
    </header>
  );
}

function Pages() {
  const before = useRef("");
  const [location] = useLocation();
  useEffect(() => {
    if (location !== before.current) scrollTo(0, 0);
    before.current = location;
  }, [location]);
  return (
    <Guard key={location}>
      <Suspense fallback={<Loading />}>
        <Switch>
          {PAGES.map(({ path, page: Page, title = "", scopes }) => (
            <Route key={path} path={path}>{scopes === undefined ? <Page /> : <For scopes={scopes} title={title}><Page /></For>}</Route>
          ))}
          <Route>
            <Heading title={texts.problem.lost} />
            <Empty><Link href="/">{texts.nav.inbox}</Link></Empty>
          </Route>
        </Switch>
      </Suspense>
    </Guard>
  );
}

function enter(value: string | null) {
  keep(value);
  cache.clear();
  location.reload();
}

function Login({ reason }: { reason: string }) {
  const [key, setKey] = useState("");
  return (
    <main>
      <Heading title={texts.session.title} />
      {reason === "" ? null : <Card tone="problem"><p role="alert">{reason}</p></Card>}
      <Card>
        <p>{texts.session.how}</p>
        <pre>{texts.session.command}</pre>
      </Card>
      <Card>
        <form className="row" onSubmit={(event) => { event.preventDefault(); enter(key.trim()); }}>
          <label className="grow">
            {texts.session.paste}
            <input type="password" autoComplete="off" required value={key} onChange={(event) => setKey(event.target.value)} />
          </label>
          <button className="main">{texts.session.enter}</button>
        </form>
      </Card>
    </main>
  );
}

/** A fault of a page's code is shown in its place; the bar stays. */
class Guard extends Component<{ children: ReactNode }, { error: unknown }> {
  override state = { error: null as unknown };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return <ProblemCard error={this.state.error} again={() => location.reload()} />;
  }
}
