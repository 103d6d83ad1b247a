/** Filters that stand in the address, so that each view is a link that can be sent. */

import { useLocation, useSearchParams } from "wouter";

/** Return a filter's value, empty where the address names none, and how to change it. */
export function useFilter(name: string): [string, (value: string) => void] {
  const [parameters, change] = useSearchParams();
  function set(value: string) {
    const after = new URLSearchParams(location.search); // another filter may have been changed just now
    if (value === "") after.delete(name);
    else after.set(name, value);
    change(after, { replace: true });
  }
  return [parameters.get(name) ?? "", set];
}

/** Return the last part of the path as it was before it was encoded: the router leaves `:`, `@`, `/` and others encoded. */
export function useLastPart(): string {
  useLocation(); // renders again when the address changes
  const part = location.pathname.split("/").at(-1) ?? "";
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // somebody's `%` that encodes nothing
  }
}
