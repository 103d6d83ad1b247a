/** Filters that stand in the address, so that each view is a link that can be sent. */

import { go, usePath, useSearch } from "./router";

/** Return a filter's value, empty where the address names none, and how to change it. */
export function useFilter(name: string): [string, (value: string) => void] {
  const [path, search] = [usePath(), useSearch()];
  function set(value: string) {
    const after = new URLSearchParams(location.search); // another filter may have been changed just now
    if (value === "") after.delete(name);
    else after.set(name, value);
    go(after.size === 0 ? path : `${path}?${after}`, { replace: true });
  }
  return [new URLSearchParams(search).get(name) ?? "", set];
}
