/** Model and tool calls of a run as bars on one axis of time. */

import type { Schema } from "../api/client";
import { texts } from "../texts";
import { Card, duration } from "./basics";

interface Bar {
  key: string;
  name: string;
  kind: "model" | "tool";
  failed: boolean;
  from: number; // milliseconds since the epoch
  to: number;
  tokens: number;
}

function modelBar(call: Schema<"ModelCall">, key: string): Bar {
  const to = Date.parse(call.at);
  return { key, name: `${call.path} ${call.model}`, kind: "model", failed: call.error !== "", from: to - (call.ms ?? 0), to, tokens: call.tokens };
}

/** A call without a result lasts until `end`. */
function toolBar(call: Schema<"Call">, path: string, end: string): Bar {
  const [from, to] = [Date.parse(call.at), Date.parse(call.result_at ?? end)];
  return { key: call.id, name: `${path} ${call.name}`, kind: "tool", failed: call.status === "failed", from, to, tokens: 0 };
}

function barsOf(run: Schema<"RunDocument">): Bar[] {
  const end = run.ended_at ?? new Date().toISOString();
  const decisions = run.decisions.map((call) => modelBar(call, `step ${call.step}`));
  const work = run.tasks.flatMap((task) =>
    task.attempts.flatMap((attempt) => [
      ...attempt.model_calls.map((call) => modelBar(call, `step ${call.step}`)),
      ...attempt.calls.map((call) => toolBar(call, task.path, end)),
    ]),
  );
  return [...decisions, ...work].sort((one, other) => one.from - other.from);
}

export function Waterfall({ run }: { run: Schema<"RunDocument"> }) {
  const bars = barsOf(run);
  if (bars.length === 0) return null;
  const begin = Math.min(...bars.map((bar) => bar.from));
  const all = Math.max(1, Math.max(...bars.map((bar) => bar.to)) - begin);
  return (
    <Card title={texts.run.time}>
      <div className="waterfall" role="list">
        {bars.map((bar) => (
          <Row key={bar.key} bar={bar} left={(100 * (bar.from - begin)) / all} width={Math.max(0.5, (100 * (bar.to - bar.from)) / all)} />
        ))}
      </div>
    </Card>
  );
}

function Row({ bar, left, width }: { bar: Bar; left: number; width: number }) {
  const took = duration((bar.to - bar.from) / 1000) + (bar.tokens > 0 ? `, ${texts.run.tokens(bar.tokens)}` : "");
  return (
    <>
      <span role="listitem">{bar.name} <span className="faint">{took}</span></span>
      <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        <rect className="track" width="100" height="10" />
        <rect className={bar.failed ? "bad" : bar.kind} x={left} width={width} height="10" />
      </svg>
    </>
  );
}
