/**
 * The stream of a run. Its events are a signal that the run has changed: the page fetches the run's document again,
 * at most twice a second. Only the text of `thinking` is taken from the stream itself.
 */

import { useEffect, useState } from "react";

import type { Schema } from "./client";
import { token } from "./session";

const REFETCH_MS = 500;
const RECONNECT_MS = 1_000;

export interface StreamEvent {
  id: string;
  type: string;
  data: string;
}

/** Yield the events of a response as they come. Comments, which keep the connection open, are left out. */
export async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<StreamEvent> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const event = { id: "", type: "message", data: "" };
      for (const line of block.split("\n")) {
        const [field, text] = [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trimStart()];
        if (field === "id") event.id = text;
        else if (field === "event") event.type = text;
        else if (field === "data") event.data += text;
      }
      if (event.data !== "") yield event;
    }
  }
}

interface Draft {
  message: string;
  text: string;
}

/**
 * Follow a run while the page is visible, and return the answer as far as it is written. `refetch` is called after
 * events, 500 ms after it has returned at the earliest. Reconnects after the last event that was received.
 */
export function useRunEvents(run: string, ended: boolean, refetch: () => Promise<unknown>): string {
  const [draft, setDraft] = useState<Draft>({ message: "", text: "" });
  useEffect(() => {
    if (ended) return;
    let last = "";
    let [stale, fetching, closed] = [false, false, false];
    let connection: AbortController | undefined;

    async function signal() {
      stale = true;
      if (fetching) return;
      fetching = true;
      while (stale) {
        await sleep(REFETCH_MS);
        if (closed) return;
        stale = false;
        await refetch();
      }
      fetching = false;
    }

    async function follow(current: AbortController) {
      for (;;) {
        const bearer = token();
        const headers = new Headers(bearer === null ? {} : { Authorization: `Bearer ${bearer}` });
        if (last !== "") headers.set("Last-Event-ID", last);
        try {
          const response = await fetch(`/v1/runs/${encodeURIComponent(run)}/events`, { headers, signal: current.signal });
          if (response.status >= 400 && response.status < 500 && response.status !== 429) return void signal();
          if (response.ok && response.body !== null)
            for await (const event of eventsOf(response.body)) {
              if (event.id !== "") last = event.id;
              if (event.type === "thinking") setDraft((before) => written(before, event.data));
              else void signal();
              if (event.type === "done") return;
            }
        } catch {
          // the connection was lost or closed: the next one goes on after the last event
        }
        if (current.signal.aborted) return;
        void signal(); // the page goes on without a stream, too
        await sleep(RECONNECT_MS);
      }
    }

    function connect() {
      connection?.abort();
      connection = undefined;
      if (document.hidden) return;
      connection = new AbortController();
      void follow(connection);
      void signal();
    }

    document.addEventListener("visibilitychange", connect);
    connect();
    return () => {
      document.removeEventListener("visibilitychange", connect);
      connection?.abort();
      closed = true;
    };
  }, [run, ended]);
  return draft.text;
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** A piece of a new message replaces the text of the one before. */
function written(before: Draft, data: string): Draft {
  const piece = JSON.parse(data) as Schema<"Thinking">;
  const text = piece.message_id === before.message ? before.text + piece.content : piece.content;
  return { message: piece.message_id, text };
}
