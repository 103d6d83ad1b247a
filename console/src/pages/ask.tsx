/** A request box; the run's page follows. */

import { useMemo, useState } from "react";

import { api, fetcher, type Schema } from "../api/client";
import { useAction } from "../parts/action";
import { useFilter } from "../parts/address";
import { Card, Heading, ProblemCard } from "../parts/basics";
import { go } from "../parts/router";
import { texts } from "../texts";

const MODES: Schema<"Mode">[] = ["CONSERVATIVE", "MODERATE", "EXPLORATORY"];
const CHANNELS: Schema<"Channel">[] = ["CHAT", "CODE_TASK", "SYSTEM_HEALTH"];

export default function Ask() {
  const [thread, setThread] = useFilter("thread");
  const [agent, setAgent] = useFilter("agent");
  const [mode, setMode] = useFilter("mode");
  const [channel, setChannel] = useFilter("channel");
  const [input, setInput] = useState("");
  const agents = api.useQuery("get", "/v1/agents", { params: { query: {} } });
  const asked = useMemo(() => {
    const config = { ...(mode && { mode }), ...(channel && { channel }), ...(agent && { agent }) };
    const body = { input, config, thread_id: thread || unique() } as Schema<"RunBody">;
    return { body, params: { header: { "idempotency-key": unique() } } }; // asked again, it stays one run
  }, [input, mode, channel, agent, thread]);
  const ask = useAction(async () => {
    const { data, error } = await fetcher.POST("/v1/runs", asked);
    if (data) go(`/runs/${data.run_id}`);
    return error ? { error } : {};
  });
  return (
    <>
      <Heading title={texts.ask.title} />
      <Card>
        <form className="stack" onSubmit={(event) => { event.preventDefault(); ask.mutate(); }}>
          <label>
            {texts.runs.request}
            <textarea autoFocus required value={input} onChange={(event) => setInput(event.target.value)} onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.form?.requestSubmit(); }} />
          </label>
          <p className="faint">{texts.ask.keys}</p>
          <div className="row">
            <Choice label={texts.ask.mode} value={mode || "MODERATE"} values={MODES} onChange={setMode} />
            <Choice label={texts.ask.channel} value={channel || "CHAT"} values={CHANNELS} onChange={setChannel} />
            <Choice label={texts.run.agent} value={agent} values={["", ...(agents.data?.agents.map((one) => one.name) ?? [])]} onChange={setAgent} none={texts.ask.anyAgent} />
            <label>
              {texts.run.thread}
              <input value={thread} onChange={(event) => setThread(event.target.value)} placeholder={texts.ask.newThread} />
            </label>
          </div>
          {ask.error ? <ProblemCard error={ask.error} /> : null}
          <div><button className="main" disabled={ask.isPending}>{texts.nav.ask}</button></div>
        </form>
      </Card>
    </>
  );
}

/** `crypto.randomUUID` is there with HTTPS or on the platform's machine alone. */
function unique(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A value of the address that is none of the choices is shown, too, since it is sent. */
function Choice({ label, value, values, onChange, none = "" }: { label: string; value: string; values: string[]; onChange: (value: string) => void; none?: string }) {
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => onChange(event.target.value)}>
        {[...new Set([...values, value])].map((one) => <option key={one} value={one}>{(texts.ask.words[one] ?? one) || none}</option>)}
      </select>
    </label>
  );
}
