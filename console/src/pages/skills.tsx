/** What was learned: where it is from, how it did, and which calls it would make. */

import { useEffect } from "react";

import { api, fetcher, type Schema } from "../api/client";
import { Action } from "../parts/action";
import { useFilter } from "../parts/address";
import { Badge, Card, Empty, Heading, Json, Loaded, Table, toContent, When } from "../parts/basics";
import { useMay } from "../parts/caller";
import { Link } from "../parts/router";
import { texts } from "../texts";

const STATES: Schema<"SkillState">[] = ["active", "suspended", "quarantined", "retired"];

export default function Skills() {
  const [state, setState] = useFilter("state");
  const [shown, show] = useFilter("skill");
  const query = state === "" ? {} : { state: state as Schema<"SkillState"> };
  const skills = api.useQuery("get", "/v1/skills", { params: { query } });
  return (
    <>
      <Heading title={texts.nav.skills}>
        <label className="row">
          {texts.run.status}
          <select value={state} onChange={(event) => setState(event.target.value)}>
            <option value="">{texts.skills.anyState}</option>
            {STATES.map((one) => <option key={one} value={one}>{one}</option>)}
          </select>
        </label>
      </Heading>
      {shown === "" ? null : <Skill key={shown} id={shown} onClose={() => show("")} />}
      <Loaded of={skills}>
        {({ skills: all }) =>
          all.length === 0 ? <Empty>{state === "" ? texts.skills.empty : texts.skills.emptyState} {state === "" ? <Link href="/ask">{texts.nav.ask}</Link> : <button className="plain" onClick={() => setState("")}>{texts.skills.anyState}</button>}</Empty> : (
            <Table
              label={texts.nav.skills}
              columns={[texts.run.task, texts.run.status, texts.run.agent, texts.skills.uses, texts.skills.record, texts.skills.from]}
              rows={all.map((one) => ({
                key: one.id,
                cells: [
                  <button className="plain" onClick={() => show(one.id)}>{one.template}</button>,
                  <><Badge state={one.state} /> {one.reason}</>,
                  one.agent,
                  one.uses,
                  texts.skills.counts(one.successes, one.failures),
                  <>{one.provenance} <When time={one.created_at} /></>,
                ],
              }))}
            />
          )
        }
      </Loaded>
    </>
  );
}

function Skill({ id, onClose }: { id: string; onClose: () => void }) {
  const path = { skill_id: id };
  const found = api.useQuery("get", "/v1/skills/{skill_id}", { params: { path } });
  const may = useMay("admin");
  useEffect(toContent, []); // it stands above the table that it was chosen in
  async function remove() {
    const { error } = await fetcher.DELETE("/v1/skills/{skill_id}", { params: { path } });
    if (!error) onClose();
    return error ? { error } : {};
  }
  return (
    <Loaded of={found}>
      {({ skill, examples }) => (
        <Card title={skill.template}>
          <div className="stack">
            {skill.source_run ? <p>{texts.skills.learned} <Link href={`/runs/${skill.source_run}`}>{skill.source_run.slice(-8)}</Link></p> : null}
            <h3>{texts.skills.calls}</h3>
            {skill.calls.map((call, at) => <div key={at}><code>{call.tool}</code><Json value={call.arguments} /></div>)}
            {examples.length > 0 ? <h3>{texts.skills.tasks}</h3> : null}
            <ul>{examples.map((one) => <li key={one.created_at}>{one.task}</li>)}</ul>
            <div className="row">
              <button onClick={onClose}>{texts.close}</button>
              {may ? (
                <>
                  {skill.state === "retired" || skill.state === "quarantined" ? (
                    <Action label={texts.skills.restore} run={() => fetcher.POST("/v1/skills/{skill_id}/restore", { params: { path } })} />
                  ) : (
                    <Action label={texts.skills.retire} ask={texts.skills.retireSure} reason run={(reason) => fetcher.POST("/v1/skills/{skill_id}/retire", { params: { path }, body: { reason } })} />
                  )}
                  <Action label={texts.skills.delete} ask={texts.skills.deleteSure} run={() => remove()} />
                </>
              ) : null}
            </div>
          </div>
        </Card>
      )}
    </Loaded>
  );
}
