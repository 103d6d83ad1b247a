/** One server: its tools with their settings, and definitions in quarantine with what changed in them. */

import { useState } from "react";

import { api, fetcher, type Schema } from "../api/client";
import { Action } from "../parts/action";
import { Badge, Card, Empty, Heading, Json, Loaded, Table } from "../parts/basics";
import { Diff } from "../parts/diff";
import { useParams } from "../parts/router";
import { texts } from "../texts";

export default function ServerPage() {
  const { name = "" } = useParams();
  const path = { name };
  const server = api.useQuery("get", "/v1/servers/{name}", { params: { path } });
  const [tested, setTested] = useState<Schema<"ServerProbe"> | null>(null);
  async function test() {
    setTested(null);
    const { data, error } = await fetcher.POST("/v1/servers/{name}/test", { params: { path } });
    if (data) setTested(data);
    return error ? { error } : {};
  }
  return (
    <Loaded of={server} title={name}>
      {(found) => (
        <>
          <Heading title={name}>
            <div className="row">
              <Badge state={found.state} />
              <Action label={texts.registry.test} run={test} />
            </div>
          </Heading>
          {tested === null ? null : <Tested probe={tested} />}
          {found.error ? <Card tone="problem"><p>{found.error} {found.remedy}</p></Card> : null}
          {found.description === "" ? null : <Card><p>{found.description}</p></Card>}
          {found.pins.filter((pin) => pin.state === "quarantined").map((pin) => <Quarantined key={pin.tool} server={name} pin={pin} />)}
          {found.tools.length === 0 ? <Empty>{texts.registry.noTools}</Empty> : <Card title={texts.registry.tools}>
            <Table
              label={texts.registry.tools}
              columns={[texts.registry.tool, texts.registry.effect, texts.registry.description]}
              rows={found.tools.map((tool) => ({ key: tool.name, cells: [<code>{tool.name}</code>, tool.effect, tool.description] }))}
            />
          </Card>}
          <details className="card"><summary>{texts.registry.configuration}</summary><Json value={found.config} /></details>
        </>
      )}
    </Loaded>
  );
}

/** What a test found: how long the server took, and what differs from what is stored. */
function Tested({ probe }: { probe: Schema<"ServerProbe"> }) {
  const differs = [...probe.new.map((one) => `+ ${one}`), ...probe.gone.map((one) => `- ${one}`), ...probe.changed.map((one) => `~ ${one}`)];
  return (
    <Card>
      <p role="status">{texts.registry.tested(probe.seconds, probe.tools.length)} {differs.length === 0 ? texts.registry.asStored : texts.registry.differs}</p>
      {differs.length === 0 ? null : <Diff text={differs.join("\n")} />}
    </Card>
  );
}

function Quarantined({ server, pin }: { server: string; pin: Schema<"PinnedTool"> }) {
  const approve = () =>
    fetcher.POST("/v1/servers/{name}/approve", { params: { path: { name: server } }, body: { tools: { [pin.tool]: pin.offered_hash ?? "" } } });
  return (
    <Card title={`${pin.tool}: ${texts.registry.inQuarantine}`} tone="failed">
      <div className="stack">
        <p>{pin.reason}</p>
        <Diff text={pin.diff} />
        {pin.hints.length === 0 ? null : <h3>{texts.registry.hints}</h3>}
        <ul>{pin.hints.map((hint) => <li key={hint}>{hint}</li>)}</ul>
        {pin.offered_hash !== null ? <div><Action label={texts.inbox.approve} ask={texts.registry.approveSure} run={approve} main /></div> : null}
      </div>
    </Card>
  );
}
