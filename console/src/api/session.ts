/** Who the page acts as: a session token that a link of the command line or a pasted key gave. */

const KEPT_AS = "starling.token";

/** Return the kept token. */
export function token(): string | null {
  return localStorage.getItem(KEPT_AS);
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
