/** The API as typed calls. Types are generated from its description; an answer that refuses is thrown as a problem. */

import { keepPreviousData, QueryCache, QueryClient } from "@tanstack/react-query";
import createFetchClient, { type Middleware } from "openapi-fetch";
import createQueryClient from "openapi-react-query";

import type { components, paths } from "../generated/api";
import { token } from "./session";

export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];
export type Problem = Schema<"Problem">;

/** Problems that no answer describes have the status 0. */
export function problemOf(error: unknown): Problem {
  if (typeof error === "object" && error !== null && "detail" in error) return error as Problem;
  const detail = error instanceof Error ? error.message : String(error);
  return { type: "about:blank", title: "No answer", status: 0, detail, code: "no_answer", remedy: "", errors: [] };
}

const authorization: Middleware = {
  onRequest({ request }) {
    const bearer = token();
    if (bearer !== null) request.headers.set("Authorization", `Bearer ${bearer}`);
    return request;
  },
};

export const fetcher = createFetchClient<paths>({ baseUrl: location.origin });
fetcher.use(authorization);

export const api = createQueryClient(fetcher);

const SESSION = "/v1/console/session";

/** Where a request is refused since the session has ended, the session is asked for again, and the login is shown. */
const queryCache = new QueryCache({
  onError(error, query) {
    if (problemOf(error).status === 401 && query.queryKey[1] !== SESSION) void cache.invalidateQueries({ queryKey: ["get", SESSION] });
  },
});

export const cache: QueryClient = new QueryClient({
  queryCache,
  defaultOptions: {
    queries: {
      retry: (failures, error) => problemOf(error).status !== 0 && problemOf(error).status < 500 ? false : failures < 5,
      staleTime: 1_000,
      placeholderData: keepPreviousData, // a changed filter shows what there was until its answer is there
    },
  },
});
