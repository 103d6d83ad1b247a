/** Who the page acts as, and what that caller may do: pages show no button for what a key may not do. */

import { createContext, useContext, type ReactNode } from "react";

import type { Schema } from "../api/client";
import { texts } from "../texts";
import { Empty, Heading } from "./basics";

export const CallerContext = createContext<Schema<"SessionCaller">>({ tenant: "default", scopes: [], key_id: "", name: "", expires_at: null, on_host: false });

export function useMay(scope: Schema<"Scope">): boolean {
  const { scopes } = useContext(CallerContext);
  return scopes.includes(scope);
}

/** A page for callers with one of some scopes; others are told so, and nothing is asked for. */
export function For({ scopes, title, children }: { scopes: Schema<"Scope">[]; title: string; children: ReactNode }) {
  const caller = useContext(CallerContext);
  if (scopes.some((scope) => caller.scopes.includes(scope))) return children;
  return <><Heading title={title} /><Empty>{texts.never(scopes)}</Empty></>;
}
