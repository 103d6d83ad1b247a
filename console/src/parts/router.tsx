/** Pages by their address, with the browser's own history. Paths are those within `/console`. */

import { createContext, useContext, useSyncExternalStore, type AnchorHTMLAttributes, type MouseEvent } from "react";

const BASE = "/console";
const CHANGED = "popstate"; // what the browser sends at Back and Forward, too

function subscribe(listener: () => void) {
  addEventListener(CHANGED, listener);
  return () => removeEventListener(CHANGED, listener);
}

export function usePath(): string {
  return useSyncExternalStore(subscribe, () => location.pathname).slice(BASE.length) || "/";
}

export function useSearch(): string {
  return useSyncExternalStore(subscribe, () => location.search);
}

/** Show another page from its beginning, or replace the address of this one. Back shows a page where it was left: the browser scrolls. */
export function go(to: string, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", BASE + to);
  dispatchEvent(new PopStateEvent(CHANGED));
  if (!replace) scrollTo(0, 0);
}

/** Return the parts of a path that a pattern such as `/runs/:id` names, or null where it doesn't fit. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const [wanted, given] = [pattern, path].map((one) => one.replace(/\/$/, "").split("/")) as [string[], string[]];
  const fits = wanted.length === given.length && wanted.every((part, at) => part === given[at] || (part.startsWith(":") && given[at] !== ""));
  return fits ? Object.fromEntries(wanted.map((part, at) => [part.slice(1), decoded(given[at] ?? "")])) : null;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // somebody's `%` that encodes nothing
  }
}

export const ParamsContext = createContext<Record<string, string>>({});

export function useParams(): Record<string, string> {
  return useContext(ParamsContext);
}

/** A link within the console; with a key held or another button the browser does what it does with links. */
export function Link({ href, ...rest }: AnchorHTMLAttributes<HTMLAnchorElement> & { href: string }) {
  function follow(event: MouseEvent) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(href);
  }
  return <a {...rest} href={BASE + href} onClick={follow} />;
}
