/** Who the page acts as: a bearer token that a link of the command line or a pasted key gave. */

const KEPT_AS = "starling.token";

/** Return the kept token; what a header can't hold is encoded, so that a mistyped key is refused like any other. */
export function token(): string | null {
  const kept = localStorage.getItem(KEPT_AS);
  return kept === null ? null : encodeURI(kept.toWellFormed());
}

/** All tabs act as the same caller: they begin anew when one of them logs in or out. */
addEventListener("storage", (event) => {
  if (event.key === KEPT_AS) location.reload();
});

/** Keep a token for the next visits, or forget the one that is kept. */
export function keep(value: string | null): void {
  if (value === null) localStorage.removeItem(KEPT_AS);
  else localStorage.setItem(KEPT_AS, value);
}

/** Return the one-time code of the address's fragment and take it out of the address and the history. */
export function codeOfAddress(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code !== null) history.replaceState(null, "", location.pathname + location.search);
  return code;
}
