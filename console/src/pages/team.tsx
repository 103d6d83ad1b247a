/** One team: graph, members, versions with their specs and proofs, and what two versions differ in. */

import { api, fetcher, type Schema } from "../api/client";
import { Action } from "../parts/action";
import { useFilter } from "../parts/address";
import { Badge, Card, Heading, Json, Loaded, Table, When } from "../parts/basics";
import { useMay } from "../parts/caller";
import { Diff } from "../parts/diff";
import { Layers } from "../parts/graph";
import { Criterion, Outcome } from "../parts/proof";
import { Link, go, useParams } from "../parts/router";
import { texts } from "../texts";

export default function TeamPage() {
  const { name = "" } = useParams();
  const path = { name };
  const [chosen] = useFilter("version");
  const team = api.useQuery("get", "/v1/teams/{name}", { params: { path } });
  const versions = api.useQuery("get", "/v1/teams/{name}/versions", { params: { path } });
  return (
    <Loaded of={team} title={name}>
      {(found) => {
        const version = chosen === "" ? found.version : Number(chosen);
        const stored = versions.data?.versions.find((one) => one.version === version);
        return (
          <>
            <Heading title={name}><Changes team={found} version={version} proof={stored?.proof?.state} /></Heading>
            <Card><p>{found.purpose}</p>{found.reason ? <p>{found.reason}</p> : null}</Card>
            <Graph name={name} version={version} />
            {version === found.version ? <Members members={found.members} /> : null}
            <Loaded of={versions}>
              {(all) => (
                <>
                  <Versions name={name} versions={all.versions} shown={version} />
                  <Proof name={name} version={version} stored={stored} />
                </>
              )}
            </Loaded>
          </>
        );
      }}
    </Loaded>
  );
}

function Changes({ team, version, proof }: { team: Schema<"TeamDetails">; version: number; proof: string | undefined }) {
  const path = { name: team.name };
  const [admin, may] = [useMay("admin"), useMay("teams")];
  async function prove() {
    const { data, error } = await fetcher.POST("/v1/teams/{name}/prove", { params: { path }, body: { version } as never });
    if (data) go(`/runs/${data.run_id}`);
    return error ? { error } : {};
  }
  return (
    <div className="row">
      <Badge state={team.state} />
      {admin && !(team.state === "active" && team.version === version) ? (
        <Action label={texts.teams.activate(version)} ask={`${proof === "proven" ? "" : `${texts.teams.notProved(proof)} `}${texts.teams.activateSure}`} run={() => fetcher.POST("/v1/teams/{name}/activate", { params: { path }, body: { version } })} main />
      ) : null}
      {may ? <Action label={proof === undefined ? texts.teams.prove : texts.teams.proveAgain} run={prove} /> : null}
      {admin && team.state !== "archived" ? (
        <Action label={texts.teams.archive} ask={texts.teams.archiveSure} run={() => fetcher.POST("/v1/teams/{name}/archive", { params: { path } })} />
      ) : null}
      {team.state === "active" ? <Link href={`/ask?agent=${team.name}`}>{texts.nav.ask}</Link> : null}
    </div>
  );
}

function Graph({ name, version }: { name: string; version: number }) {
  const graph = api.useQuery("get", "/v1/teams/{name}/graph", { params: { path: { name }, query: { version } } });
  return (
    <Loaded of={graph}>
      {(found) => {
        const { nodes, edges } = found as Schema<"TeamGraph">;
        return (
          <Card title={texts.teams.graph}>
            <Layers
              label={texts.teams.graph}
              nodes={nodes.map((node) => ({ ...node, title: node.name, under: node.role || node.kind, state: node.kind }))}
              edges={edges.map((edge): [string, string] => [edge.source, edge.target])}
            />
          </Card>
        );
      }}
    </Loaded>
  );
}

function Members({ members }: { members: Schema<"MemberState">[] }) {
  if (members.length === 0) return null;
  return (
    <Card title={texts.teams.members}>
      <Table
        label={texts.teams.members}
        columns={[texts.teams.member, texts.teams.role, texts.registry.tools, texts.run.status]}
        rows={members.map((one) => ({
          key: one.name,
          cells: [one.name, one.role, one.tools.join(", ") || one.team || one.server || "", <><Badge state={one.state} /> {one.reason}</>],
        }))}
      />
    </Card>
  );
}

function Versions({ name, versions, shown }: { name: string; versions: Schema<"TeamVersion">[]; shown: number }) {
  const [, choose] = useFilter("version");
  const [against, setAgainst] = useFilter("against");
  const params = { path: { name }, query: { from: Number(against), to: shown } };
  const diff = api.useQuery("get", "/v1/teams/{name}/diff", { params }, { enabled: against !== "" });
  const spec = versions.find((one) => one.version === shown)?.spec;
  return (
    <Card title={texts.teams.versions}>
      <div className="stack">
        <Table
          label={texts.teams.versions}
          columns={[texts.teams.version, texts.run.status, texts.teams.stored, texts.registry.by, texts.teams.proof, texts.action]}
          rows={versions.map((one) => ({
            key: String(one.version),
            cells: [
              <button className="plain" aria-pressed={one.version === shown} onClick={() => choose(String(one.version))}>{one.version}</button>,
              <Badge state={one.state} />,
              <When time={one.created_at} />,
              one.created_by,
              one.proof ? <Link href={`/runs/${one.proof.run_id}`}>{one.proof.state}</Link> : "–",
              one.version === shown ? "" : <button className="plain" onClick={() => setAgainst(String(one.version))}>{texts.teams.diff(one.version, shown)}</button>,
            ],
          }))}
        />
        {against === "" ? null : <Loaded of={diff}>{(found) => <Diff text={found.diff} />}</Loaded>}
        <details><summary>{texts.teams.spec(shown)}</summary><Json value={spec} /></details>
      </div>
    </Card>
  );
}

function Proof({ name, version, stored }: { name: string; version: number; stored: Schema<"TeamVersion"> | undefined }) {
  const proved = Boolean(stored?.proof);
  const words = new Map(stored?.spec.criteria?.map((one) => [one.id, one.text]));
  const params = { path: { name, version } };
  const proof = api.useQuery("get", "/v1/teams/{name}/versions/{version}/proof", { params }, { enabled: proved });
  if (!proved) return <Card title={texts.teams.proof}><p className="faint">{texts.teams.noProof}</p></Card>;
  return (
    <Loaded of={proof}>
      {(report) => (
        <Card title={texts.teams.proof}>
          <div className="stack">
            <p><Badge state={report.state} /> {texts.teams.score(report.score, report.threshold)}</p>
            {report.not_judged.length === 0 ? null : <div>{texts.teams.notJudged}<ul>{report.not_judged.map((one) => <li key={one}>{one}</li>)}</ul></div>}
            {report.cases.length === 0 ? <p className="faint">{texts.teams.noCases}</p> : <Table
              label={texts.teams.proof}
              columns={[texts.teams.case, texts.teams.passed, texts.teams.criteria, texts.run.calls, texts.run.answer]}
              rows={report.cases.map((one) => ({
                key: one.id,
                cells: [
                  one.id,
                  <Outcome of={one} />,
                  <ul>{one.criteria.map((criterion) => <li key={criterion.id}><Criterion of={criterion} text={words.get(criterion.id)} /></li>)}</ul>,
                  <ul>{one.trial.calls.map((call, at) => <li key={at}><code>{call.tool}</code> {call.status}, {call.source}</li>)}</ul>,
                  <span className="answer">{one.trial.reply || one.trial.failure}</span>,
                ],
              }))}
            />}
          </div>
        </Card>
      )}
    </Loaded>
  );
}
