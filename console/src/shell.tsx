/** The frame of all pages: login, the bar, and which page stands at which address. */

import { Component, createElement, useEffect, useState, type ComponentType, type ReactNode } from "react";

import { api, fetcher, problemOf, type Schema } from "./api/client";
import { codeOfAddress, keep, token } from "./api/session";
import { Inbox, useInterrupts } from "./pages/inbox";
import { Card, Empty, Heading, Loaded, Loading, ProblemCard } from "./parts/basics";
import { CallerContext, For } from "./parts/caller";
import { useKeptFocus } from "./parts/focus";
import { Link, match, ParamsContext, usePath } from "./parts/router";
import { texts } from "./texts";

/** A page whose code is loaded when it is first shown. Suspense would show that it loads for 300 ms at least. */
function later(load: () => Promise<{ default: ComponentType }>): ComponentType {
  let page: ComponentType | undefined;
  return function Later() {
    const [shown, show] = useState(() => page);
    useEffect(() => {
      if (shown === undefined)
        load().then((loaded) => show(() => (page = loaded.default)), (error: unknown) => show(() => { throw error; }));
    }, []);
    return shown === undefined ? <Loading /> : createElement(shown);
  };
}

/** `scopes` are those of which a page needs one. The bar has the pages whose path names nothing. */
const PAGES: { path: string; page: ComponentType; title: string; scopes?: Schema<"Scope">[] }[] = [
  { path: "/", title: texts.nav.inbox, scopes: ["run"], page: Inbox },
  { path: "/ask", title: texts.nav.ask, scopes: ["run"], page: later(() => import("./pages/ask")) },
  { path: "/runs", title: texts.nav.runs, scopes: ["run"], page: later(() => import("./pages/runs")) },
  { path: "/runs/:id", title: texts.nav.runs, scopes: ["run"], page: later(() => import("./pages/run")) },
  { path: "/runs/:id/with/:other", title: texts.nav.runs, scopes: ["run"], page: later(() => import("./pages/comparison")) },
  { path: "/threads", title: texts.nav.threads, scopes: ["run"], page: later(() => import("./pages/threads")) },
  { path: "/threads/:id", title: texts.nav.threads, scopes: ["run"], page: later(() => import("./pages/thread")) },
  { path: "/registry", title: texts.nav.registry, scopes: ["admin"], page: later(() => import("./pages/registry")) },
  { path: "/servers/:name", title: texts.nav.registry, scopes: ["admin"], page: later(() => import("./pages/server")) },
  { path: "/teams", title: texts.nav.teams, scopes: ["admin", "teams"], page: later(() => import("./pages/teams")) },
  { path: "/teams/:name", title: texts.nav.teams, scopes: ["admin", "teams"], page: later(() => import("./pages/team")) },
  { path: "/skills", title: texts.nav.skills, scopes: ["run"], page: later(() => import("./pages/skills")) },
  { path: "/access", title: texts.nav.access, page: later(() => import("./pages/access")) },
];

export function Shell() {
  const [refused, setRefused] = useState<unknown>(null);
  const [exchanged, setExchanged] = useState(false);
  useKeptFocus();
  useEffect(() => {
    addEventListener("hashchange", () => location.hash.startsWith("#code=") && location.reload()); // a link in an open page
    const code = codeOfAddress();
    if (code === null) return setExchanged(true);
    fetcher.POST("/v1/console/sessions", { body: { code } })
      .then(({ data, error }) => (data ? keep(data.token) : setRefused(error)), setRefused)
      .finally(() => setExchanged(true));
  }, []);
  return exchanged ? <Session refused={refused} /> : <Loading />;
}

function Session({ refused }: { refused: unknown }) {
  const session = api.useQuery("get", "/v1/console/session", {}, { refetchInterval: 60_000 });
  const { status } = problemOf(session.error);
  if (refused) return <Login refused={refused} />;
  if (status === 401 || status === 403) return <Login refused={token() === null ? null : session.error} />;
  if (session.data === undefined) return <main><Loaded of={session}>{() => null}</Loaded></main>;
  return (
    <CallerContext value={session.data}>
      <a className="skip" href="#page">{texts.skip}</a>
      <Bar {...session.data} />
      <main id="page" tabIndex={-1}>
        <Pages />
      </main>
    </CallerContext>
  );
}

function Bar({ name, on_host, scopes }: Schema<"SessionCaller">) {
  const path = usePath();
  const open = useInterrupts().data;
  const waiting = `${open?.interrupts.length ?? 0}${open?.next ? "+" : ""}`;
  const shown = PAGES.filter((page) => !page.path.includes(":") && (page.scopes?.some((scope) => scopes.includes(scope)) ?? true));
  return (
    <header className="bar">
      <Link href="/" className="brand">
        <img src="/console/star.svg" alt="" width="24" height="24" /> {texts.name}
      </Link>
      <nav aria-label={texts.nav.label}>
        {shown.map(({ path: to, title }) => {
          const here = to === "/" ? path === "/" : path.startsWith(to);
          return (
            <Link key={to} href={to} aria-current={here ? "page" : undefined}>
              {title} {to === "/" && waiting !== "0" ? <span className="count">{waiting}</span> : null}
            </Link>
          );
        })}
      </nav>
      <span className="faint who">{name || (on_host ? texts.session.host : texts.session.local)}</span>
      {token() === null ? null : <button onClick={leave}>{texts.session.leave}</button>}
    </header>
  );
}

function Pages() {
  const path = usePath();
  return <Guard key={path}><Page path={path} /></Guard>;
}

function Page({ path }: { path: string }) {
  for (const { path: pattern, page, title, scopes } of PAGES) {
    const params = match(pattern, path);
    if (params === null) continue;
    const shown = createElement(page);
    return <ParamsContext value={params}>{scopes === undefined ? shown : <For scopes={scopes} title={title}>{shown}</For>}</ParamsContext>;
  }
  return (
    <>
      <Heading title={texts.problem.lost} />
      <Empty><Link href="/">{texts.nav.inbox}</Link></Empty>
    </>
  );
}

function enter(value: string | null) {
  keep(value);
  location.reload();
}

/** The session ends at once, so that its token is worth nothing. */
async function leave() {
  await fetcher.DELETE("/v1/console/session").catch(() => null);
  enter(null);
}

/** Exchange a key for a session, so that the key is not kept; throws what was refused. What a header can't hold is encoded. */
async function enterWith(key: string) {
  keep(null);
  const link = await fetcher.POST("/v1/console/codes", { headers: { Authorization: `Bearer ${encodeURI(key.toWellFormed())}` } });
  if (!link.data) throw link.error;
  const begun = await fetcher.POST("/v1/console/sessions", { body: { code: link.data.code } });
  if (!begun.data) throw begun.error;
  enter(begun.data.token);
}

function Login({ refused: before }: { refused: unknown }) {
  const [key, setKey] = useState("");
  const [refused, setRefused] = useState(before);
  return (
    <main>
      <Heading title={texts.session.title} />
      {refused ? <ProblemCard error={refused} /> : null}
      <Card>
        <p>{texts.session.how}</p>
        <pre>{texts.session.command}</pre>
      </Card>
      <Card>
        <form className="row" onSubmit={(event) => { event.preventDefault(); enterWith(key.trim()).catch(setRefused); }}>
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
