/** Keys, kill switches, the audit trail, and the checks of the doctor. */

import { useContext, useState } from "react";

import { api, fetcher, type Schema } from "../api/client";
import { Action, useAction } from "../parts/action";
import { Badge, Card, Dialog, Empty, Heading, Json, json, Loaded, ProblemCard, Table, toneOf, When } from "../parts/basics";
import { CallerContext, useMay } from "../parts/caller";
import { texts } from "../texts";

const SCOPES: Schema<"Scope">[] = ["run", "service", "teams", "servers", "admin"];
const KINDS: Schema<"SwitchKind">[] = ["server", "agent", "tenant"];

export default function Access() {
  const admin = useMay("admin");
  const { on_host } = useContext(CallerContext);
  return (
    <>
      <Heading title={texts.nav.access} />
      <Me />
      {admin ? <><Switches /><Keys /><Audit /></> : <Empty>{texts.access.adminOnly}</Empty>}
      {on_host ? <Doctor /> : null}
    </>
  );
}

/** Who the page acts as, and until when. */
function Me() {
  const { tenant, scopes, key_id, name, on_host, expires_at } = useContext(CallerContext);
  return (
    <Card title={texts.access.me}>
      <dl>
        <dt>{texts.access.name}</dt>
        <dd>{name || (on_host ? texts.session.host : texts.session.local)} {key_id === "" ? null : <code>{key_id}</code>}</dd>
        <dt>{texts.access.scopes}</dt>
        <dd>{scopes.join(", ") || texts.none}</dd>
        <dt>{texts.access.tenant}</dt>
        <dd>{tenant}</dd>
        <dt>{texts.access.expires}</dt>
        <dd><When time={expires_at} /></dd>
      </dl>
    </Card>
  );
}

function Keys() {
  const keys = api.useQuery("get", "/v1/keys", { params: { query: {} } });
  return (
    <Card title={texts.access.keys}>
      <div className="stack">
        <NewKey />
        <Loaded of={keys}>
          {({ keys: all }) =>
            all.length === 0 ? <p className="faint">{texts.access.noKeys}</p> : (
              <Table
                label={texts.access.keys}
                columns={[texts.access.name, texts.run.status, texts.access.scopes, texts.access.tenant, texts.access.used, texts.access.expires, texts.action]}
                rows={all.map((key) => ({
                  key: key.id,
                  cells: [
                    key.name,
                    <Badge state={key.state} />,
                    key.scopes.join(", "),
                    key.tenant,
                    <When time={key.last_used_at} />,
                    <When time={key.expires_at} />,
                    key.state === "active" ? (
                      <Action label={texts.access.revoke} ask={texts.access.revokeSure(key.name)} run={() => fetcher.DELETE("/v1/keys/{key_id}", { params: { path: { key_id: key.id } } })} />
                    ) : null,
                  ],
                }))}
              />
            )
          }
        </Loaded>
      </div>
    </Card>
  );
}

function NewKey() {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<Schema<"Scope">[]>(["run"]);
  const [made, setMade] = useState("");
  const create = useAction(async () => {
    const { data, error } = await fetcher.POST("/v1/keys", { body: { name, scopes } });
    if (data) setMade(data.key);
    return error ? { error } : {};
  });
  const toggle = (scope: Schema<"Scope">) =>
    setScopes((before) => (before.includes(scope) ? before.filter((one) => one !== scope) : [...before, scope]));
  return (
    <form className="row" onSubmit={(event) => { event.preventDefault(); create.mutate(); }}>
      <input required value={name} onChange={(event) => setName(event.target.value)} placeholder={texts.access.name} aria-label={texts.access.name} />
      {SCOPES.map((scope) => (
        <label key={scope} className="row"><input type="checkbox" checked={scopes.includes(scope)} onChange={() => toggle(scope)} /> {scope}</label>
      ))}
      <button className="main" disabled={create.isPending || scopes.length === 0}>{texts.access.create}</button>
      {create.error ? <ProblemCard error={create.error} /> : null}
      {made === "" ? null : (
        <Dialog title={texts.access.created} onClose={() => setMade("")}>
          <p>{texts.access.once}</p>
          <pre>{made}</pre>
          <form method="dialog"><button className="main">{texts.close}</button></form>
        </Dialog>
      )}
    </form>
  );
}

function Switches() {
  const switches = api.useQuery("get", "/v1/switches", {}, { refetchInterval: 10_000 });
  const [kind, setKind] = useState<Schema<"SwitchKind">>("server");
  const [name, setName] = useState("");
  return (
    <Card title={texts.access.switches}>
      <div className="stack">
        <div className="row">
          <select value={kind} onChange={(event) => setKind(event.target.value as Schema<"SwitchKind">)} aria-label={texts.inbox.kind}>
            {KINDS.map((one) => <option key={one}>{one}</option>)}
          </select>
          <input value={name} onChange={(event) => setName(event.target.value)} placeholder={texts.access.name} aria-label={texts.access.target} />
          {name === "" ? null : (
            <Action label={texts.access.off} ask={texts.access.offSure(kind, name)} reason run={(reason) => fetcher.PUT("/v1/switches", { body: { kind, name, reason } as Schema<"SwitchOff"> })} />
          )}
        </div>
        <Loaded of={switches}>
          {({ switches: all }) =>
            all.length === 0 ? <p className="faint">{texts.access.allOn}</p> : (
              <Table
                label={texts.access.switches}
                columns={[texts.inbox.kind, texts.access.name, texts.access.tenant, texts.reason, texts.registry.by, texts.action]}
                rows={all.map((one) => ({
                  key: `${one.kind} ${one.name} ${one.tenant}`,
                  cells: [
                    one.kind, one.name, one.tenant, one.reason, one.actor,
                    <Action label={texts.access.on} run={() => fetcher.DELETE("/v1/switches", { params: { query: { kind: one.kind, name: one.name, tenant: one.tenant } } })} />,
                  ],
                }))}
              />
            )
          }
        </Loaded>
      </div>
    </Card>
  );
}

const MOST_CHANGES = 500; // that the API lists at once; further ones it lists nowhere

function Audit() {
  const [limit, setLimit] = useState(50);
  const audit = api.useQuery("get", "/v1/audit", { params: { query: { limit } } });
  return (
    <Card title={texts.access.audit}>
      <Loaded of={audit}>
        {({ changes }) => changes.length === 0 ? <p className="faint">{texts.access.noChanges}</p> : (
          <div className="stack">
            <Table
              label={texts.access.audit}
              columns={[texts.access.when, texts.registry.by, texts.access.action, texts.access.changed, texts.access.detail]}
              rows={changes.map((one, at) => ({
                key: String(at),
                cells: [<When time={one.at} />, `${one.by} ${one.origin}`, one.action, one.target, <details><summary>{json(one.detail).slice(0, 60)}</summary><Json value={one.detail} /></details>],
              }))}
            />
            {limit === MOST_CHANGES || changes.length < limit ? null : <div><button onClick={() => setLimit(MOST_CHANGES)}>{texts.more}</button></div>}
          </div>
        )}
      </Loaded>
    </Card>
  );
}

const TONES: Record<string, string> = { ok: "ready", warning: "waiting", problem: "failed" };

function Doctor() {
  const [findings, setFindings] = useState<Schema<"Diagnostic">[]>([]);
  async function check() {
    const { data, error } = await fetcher.POST("/v1/doctor");
    if (data) setFindings(data.findings);
    return error ? { error } : {};
  }
  return (
    <Card title={texts.access.doctor}>
      <div className="stack">
        <div><Action label={texts.access.check} run={check} /></div>
        {findings.length === 0 ? null : (
          <Table
            label={texts.access.doctor}
            columns={[texts.access.subject, texts.run.status, texts.access.found]}
            rows={findings.map((one, at) => ({
              key: String(at),
              cells: [one.subject, <span className={`badge ${toneOf(TONES[one.state] ?? "")}`}>{one.state}</span>, `${one.message} ${one.remedy}`],
            }))}
          />
        )}
      </div>
    </Card>
  );
}
