/** The API as typed calls. Types are generated from its description; an answer that refuses is thrown as a problem. */

import { keepPreviousData, QueryCache, QueryClient } from "@tanstack/react-query";
import createFetchClient, { type Middleware } from "openapi-fetch";
import createQueryClient from "openapi-react-query";

import type { components, paths } from "../generated/api";
import { texts } from "../texts";
import { token } from "./session";

export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];
export type Problem = Schema<"Problem">;

/** Problems that no answer describes have the status 0. */
export function problemOf(error: unknown): Problem {
  if (typeof error === "object" && error !== null && "remedy" in error) return error as Problem;
  return problem(0, error instanceof Error ? error.message : String(error));
}

function problem(status: number, detail: string): Problem {
  return { type: "about:blank", title: texts.problem.title, status, detail, code: "", remedy: "", errors: [] };
}

const middleware: Middleware = {
  onRequest({ request, schemaPath }) {
    const bearer = token();
    if (bearer !== null && schemaPath !== "/v1/console/sessions") request.headers.set("Authorization", `Bearer ${bearer}`);
    return request;
  },
  /** What a proxy refuses with is no problem document, or empty, which would count as success. */
  onResponse({ response }) {
    if (response.ok || response.headers.get("content-type")?.startsWith("application/problem+json")) return undefined;
    return Response.json(problem(response.status, texts.problem.refused(response.status)), { status: response.status });
  },
  onError({ error }) {
    return new Error(texts.problem.unreachable(String(error)));
  },
};

export const fetcher = createFetchClient<paths>({ baseUrl: location.origin });
fetcher.use(middleware);

export const api = createQueryClient(fetcher);

const SESSION = "/v1/console/session";

/** Whether the same request may succeed later. */
export function mayPass({ status }: Problem): boolean {
  return status < 400 || status === 429 || status >= 500;
}

/** Where a request is refused since the session has ended, the session is asked for again, and the login is shown. */
const queryCache = new QueryCache({
  onError(error, query) {
    if (problemOf(error).status === 401 && query.queryKey[1] !== SESSION) void cache.invalidateQueries({ queryKey: ["get", SESSION] });
  },
});

export const cache: QueryClient = new QueryClient({
  queryCache,
  defaultOptions: {
    mutations: { networkMode: "always" },
    queries: {
      networkMode: "always", // a platform on this machine answers without a network
      retry: (failures, error) => mayPass(problemOf(error)) && failures < 5,
      retryDelay: 1_000,
      staleTime: 1_000,
      placeholderData: keepPreviousData, // a changed filter shows what there was until its answer is there
    },
  },
});
