/** Small parts that every page uses. All values are shown as text. */

import type { ReactNode } from "react";
import { useEffect, useLayoutEffect, useRef, useState } from "react";

import { mayPass, problemOf } from "../api/client";
import { texts } from "../texts";

const TONES: Record<string, string> = {
  running: "live",
  queued: "live",
  waiting: "wait",
  parked: "wait",
  open: "wait",
  quarantined: "wait",
  draft: "wait",
  unproven: "wait",
  succeeded: "good",
  approved: "good",
  APPROVED: "good",
  FIXED: "good",
  ready: "good",
  active: "good",
  proven: "good",
  failed: "bad",
  cancelled: "bad",
  budget_exhausted: "bad",
  REJECTED: "bad",
  degraded: "bad",
  in_doubt: "bad",
  revoked: "bad",
};

/** Return the tone in which a state is shown: `good`, `bad`, `wait`, `live`, or none. */
export function toneOf(state: string): string {
  return TONES[state] ?? "";
}

export function Badge({ state }: { state: string }) {
  return <span className={`badge ${toneOf(state)}`}>{texts.state[state] ?? state}</span>;
}

/** Return a duration in at most two units, such as `1 min 5 s`. */
export function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

/** The seconds since a time, or to one that is to come, as they pass. */
export function Elapsed({ time }: { time: string }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return <>{duration(Math.max(1, Math.abs(now - Date.parse(time)) / 1000))}</>;
}

export function When({ time }: { time: string | null | undefined }) {
  if (!time) return <>–</>;
  return <time dateTime={time}>{new Date(time).toLocaleString()}</time>;
}

/** A long text is cut in what is shown at once: a browser lays out some 100,000 characters fluently. */
const SHOWN_CHARACTERS = 20_000;

export function Long({ text }: { text: string }) {
  const rest = text.length - SHOWN_CHARACTERS;
  return <pre tabIndex={0}>{rest > 0 ? texts.cut(text.slice(0, SHOWN_CHARACTERS), rest) : text}</pre>;
}

/** Return a text with escapes in place of characters that hide, or reorder what stands beside them. */
export function visible(text: string): string {
  const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return text.replace(/[\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\udb40[\udc00-\udc7f]/g, (found) => found.split("").map(escaped).join(""));
}

export function json(value: unknown, indent = 0): string {
  return visible(JSON.stringify(value, null, indent) ?? "");
}

export function Json({ value }: { value: unknown }) {
  return <Long text={json(value, 2)} />;
}

export function Card({ title, children, tone = "" }: { title?: string; children: ReactNode; tone?: string }) {
  return (
    <section className={`card ${tone}`}>
      {title === undefined ? null : <h2>{title}</h2>}
      {children}
    </section>
  );
}

export function ProblemCard({ error, again }: { error: unknown; again?: () => void }) {
  const problem = problemOf(error);
  return (
    <section className="card problem stack" role="alert">
      <strong>{problem.title || texts.problem.title}</strong>
      <p>{visible(problem.detail)}</p>
      {problem.remedy ? <p>{problem.remedy}</p> : null}
      {problem.errors.length > 1 ? <Json value={problem.errors} /> : null}
      {again === undefined || !mayPass(problem) ? null : <div><button onClick={again}>{texts.problem.again}</button></div>}
    </section>
  );
}

export function Loading() {
  return <p className="faint late">{texts.loading}</p>;
}

interface Asked<Value> {
  data: Value | undefined;
  error: unknown;
  failureReason: unknown;
  refetch: () => unknown;
}

/** Show what was asked for, once it is there, and the problem, if it can't be asked for now; until then with `title`. */
export function Loaded<Value>({ of, title, children }: { of: Asked<Value>; title?: string; children: (value: Value) => ReactNode }) {
  const error = of.error ?? of.failureReason;
  const problem = error ? <ProblemCard error={error} again={() => void of.refetch()} /> : null;
  if (of.data !== undefined) return <>{problem}{children(of.data)}</>;
  return <>{title === undefined ? null : <Heading title={title} />}{problem ?? <Loading />}</>;
}

export function Empty({ children }: { children: ReactNode }) {
  return <section className="card faint">{children}</section>;
}

/** A table whose first row names the columns; in a narrow window each cell names its own. */
export function Table({ columns, rows, label }: { columns: string[]; rows: { key: string; cells: ReactNode[] }[]; label: string }) {
  return (
    <div className="wide" tabIndex={0} role="region" aria-label={label}>
      <table role="table">
        <thead role="rowgroup">
          <tr role="row">{columns.map((name) => <th key={name} scope="col" role="columnheader">{name}</th>)}</tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr key={row.key} role="row">
              {row.cells.map((cell, at) => <td key={columns[at]} role="cell" data-label={columns[at]}><div>{cell}</div></td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/**
 * A modal dialog that is open while it is rendered. The focus goes to the element with `data-first`, if any, and back
 * to where it was before: a dialog must be closed for that before it leaves the page.
 */
export function Dialog({ title, children, onClose }: { title: string; children: ReactNode; onClose: () => void }) {
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>("[data-first]")?.focus();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={element} onClose={onClose} aria-label={title}>
      <div className="stack">
        <h2>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** Bring the beginning of the page into view, and the focus there. */
export function toContent() {
  scrollTo(0, 0);
  document.getElementById("page")?.focus({ preventScroll: true });
}

/** Set the title of the tab, and return the heading of the page. */
export function Heading({ title, children }: { title: string; children?: ReactNode }) {
  useEffect(() => {
    document.title = `${title} – ${texts.name}`;
  }, [title]);
  return (
    <div className="row ends">
      <h1>{title}</h1>
      {children}
    </div>
  );
}
