/** Servers with their state, what a reload would change, and the epochs before. */

import { useState } from "react";

import { api, fetcher, type Schema } from "../api/client";
import { Action } from "../parts/action";
import { useFilter } from "../parts/address";
import { Badge, Card, Empty, Heading, Json, Loaded, ProblemCard, Table, When } from "../parts/basics";
import { Link } from "../parts/router";
import { texts } from "../texts";

export default function Registry() {
  return (
    <>
      <Heading title={texts.nav.registry} />
      <Servers />
      <Reload />
      <Epochs />
    </>
  );
}

function Servers() {
  const [filter, setFilter] = useFilter("server");
  const servers = api.useQuery("get", "/v1/servers", {}, { refetchInterval: 10_000 });
  return (
    <Loaded of={servers}>
      {({ servers: all }) => {
        const shown = all.filter((one) => one.name.includes(filter));
        if (all.length === 0) return <Empty>{texts.registry.noServers}</Empty>;
        return (
          <Card title={texts.registry.servers}>
            <div className="stack">
              <input value={filter} onChange={(event) => setFilter(event.target.value)} placeholder={texts.registry.filter} aria-label={texts.registry.filter} />
              {shown.length === 0 ? <p className="faint">{texts.registry.noneFits}</p> : <Table
                label={texts.registry.servers}
                columns={[texts.registry.server, texts.run.status, texts.registry.tools, texts.registry.isolation, texts.registry.attention]}
                rows={shown.map((one) => ({
                  key: one.name,
                  cells: [
                    <Link href={`/servers/${encodeURIComponent(one.name)}`}>{one.name}</Link>,
                    <Badge state={one.state} />,
                    one.tools,
                    one.isolation ? texts.registry.isolated(one.isolation.processes, one.isolation.files) : "",
                    <Attention server={one} />,
                  ],
                }))}
              />}
            </div>
          </Card>
        );
      }}
    </Loaded>
  );
}

function Attention({ server }: { server: Schema<"ServerSummary"> }) {
  const quarantined = Object.keys(server.quarantined).length;
  return (
    <>
      {server.error ? <div>{server.error} {server.remedy}</div> : null}
      {quarantined > 0 ? <div><Badge state="quarantined" /> {texts.registry.quarantined(quarantined)}</div> : null}
      {server.breakers.map((one) => <div key={one.process}>{one.reason}</div>)}
    </>
  );
}

/** A reload is shown as a plan before it is made; without a document servers stay as they are. */
function Reload() {
  const [text, setText] = useState("");
  const [relist, setRelist] = useState(false);
  const [answer, setAnswer] = useState<{ report: Schema<"RegistryReport">; planned: boolean } | null>(null);
  const [fault, setFault] = useState<unknown>(null);

  async function ask(path: "/v1/registry/plan" | "/v1/registry/reload") {
    setFault(null);
    setAnswer(null);
    let body: Schema<"ServersDocument"> | undefined;
    try {
      body = text.trim() === "" ? undefined : (JSON.parse(text) as Schema<"ServersDocument">);
    } catch (error) {
      setFault(error);
      return {};
    }
    const params = { query: { relist } };
    const { data, error } = await fetcher.POST(path, body === undefined ? { params } : { params, body });
    if (data) setAnswer({ report: data, planned: path === "/v1/registry/plan" });
    return error ? { error } : {};
  }

  /** Write the servers of the file as they are into the field. */
  async function fill() {
    const { data: list, error } = await fetcher.GET("/v1/servers");
    if (error) return { error };
    const names = list.servers.filter((one) => one.source === "file").map((one) => one.name);
    const found = await Promise.all(names.map((name) => fetcher.GET("/v1/servers/{name}", { params: { path: { name } } })));
    const refused = found.find((one) => one.error);
    if (refused) return { error: refused.error };
    setText(JSON.stringify({ mcpServers: Object.fromEntries(found.map(({ data }) => [data?.name, data?.config])) }, null, 2));
    return {};
  }

  return (
    <Card title={texts.registry.reload}>
      <div className="stack">
        <label>
          {texts.registry.document}
          <textarea value={text} onChange={(event) => setText(event.target.value)} spellCheck={false} placeholder='{"mcpServers": {…}}' />
        </label>
        <label className="row">
          <input type="checkbox" checked={relist} onChange={(event) => setRelist(event.target.checked)} /> {texts.registry.relist}
        </label>
        <div className="row">
          <Action label={texts.registry.fill} run={fill} />
          <Action label={texts.registry.plan} run={() => ask("/v1/registry/plan")} />
          <Action label={texts.registry.reload} ask={texts.registry.sure} run={() => ask("/v1/registry/reload")} main />
        </div>
        {fault === null ? null : <ProblemCard error={fault} />}
        {answer === null ? null : <Report {...answer} />}
      </div>
    </Card>
  );
}

function Report({ report, planned }: { report: Schema<"RegistryReport">; planned: boolean }) {
  const warnings = { ...report.warnings, ...report.broken_agents, ...report.broken_teams, ...report.prompt_warnings };
  return (
    <div className="stack">
      <p role="status">{!report.changed ? texts.registry.unchanged : planned ? texts.registry.planned : texts.registry.reloaded(report.epoch)}</p>
      {report.changed ? <ChangeList changes={report.changes} /> : null}
      {Object.entries(warnings).map(([name, reason]) => <p key={name}><strong>{name}</strong> {reason}</p>)}
      {Object.keys(report.quarantined).map((name) => (
        <p key={name}><Badge state="quarantined" /> <Link href={`/servers/${encodeURIComponent(name)}`}>{name}</Link></p>
      ))}
    </div>
  );
}

const SIGNS: Record<string, string> = { added: "+", removed: "-", changed: "~" };

export function ChangeList({ changes }: { changes: Schema<"Changes"> }) {
  const lists = { server: changes.servers, agent: changes.agents, team: changes.teams, prompt: changes.prompts, governance: changes.governance };
  const ofTools = Object.entries(changes.tools).map(([server, names]) => [`${server}:`, names] as const);
  const lines = [...Object.entries(lists), ...ofTools].flatMap(([kind, names]) =>
    Object.entries(names).flatMap(([how, all]) => (all as string[]).map((name) => ({ how, text: `${SIGNS[how] ?? "~"} ${kind} ${name}` }))),
  );
  return <pre tabIndex={0}>{lines.map(({ how, text }) => <span key={text} className={how}>{`${text}\n`}</span>)}</pre>;
}

function Epochs() {
  const [shown, show] = useFilter("epoch");
  const epochs = api.useQuery("get", "/v1/registry", { params: { query: { limit: shown === "" ? 30 : 1_000 } } });
  const rollback = (number: number) => fetcher.POST("/v1/registry/rollback", { body: { number } });
  return (
    <Loaded of={epochs}>
      {({ epochs: all }) => (
        <Card title={texts.registry.epochs}>
          {shown === "" ? null : <button className="plain" onClick={() => show("")}>{texts.registry.allEpochs}</button>}
          <Table
            label={texts.registry.epochs}
            columns={[texts.run.epoch, texts.runs.when, texts.registry.by, texts.registry.openRuns, texts.registry.changes, texts.action]}
            rows={all.filter((one) => shown === "" || String(one.number) === shown).map((epoch) => ({
              key: String(epoch.number),
              cells: [
                epoch.number,
                <When time={epoch.created_at} />,
                `${epoch.actor}, ${epoch.origin}`,
                epoch.runs,
                <details open={shown !== ""}><summary>{texts.registry.changes}</summary><ChangeList changes={epoch.changes} /><Json value={epoch.changes.details} /></details>,
                epoch.active ? <Badge state="active" /> : <Action label={texts.registry.rollback} ask={texts.registry.rollbackSure(epoch.number)} run={() => rollback(epoch.number)} />,
              ],
            }))}
          />
        </Card>
      )}
    </Loaded>
  );
}
