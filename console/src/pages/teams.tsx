/** The teams of the tenant, and building one from a wish. */

import { useState } from "react";

import { api, fetcher } from "../api/client";
import { useAction } from "../parts/action";
import { Badge, Card, Empty, Heading, Loaded, ProblemCard, Table, When } from "../parts/basics";
import { useMay } from "../parts/caller";
import { Link, go } from "../parts/router";
import { texts } from "../texts";

export default function Teams() {
  const teams = api.useQuery("get", "/v1/teams", {});
  return (
    <>
      <Heading title={texts.nav.teams} />
      {useMay("teams") ? <Build /> : null}
      <Loaded of={teams}>
        {({ teams: all }) =>
          all.length === 0 ? <Empty>{texts.teams.empty}</Empty> : (
            <Table
              label={texts.nav.teams}
              columns={[texts.teams.team, texts.run.status, texts.teams.version, texts.teams.purpose, texts.teams.activated]}
              rows={all.map((team) => ({
                key: team.name,
                cells: [
                  <Link href={`/teams/${team.name}`}>{team.name}</Link>,
                  <Badge state={team.state} />,
                  team.version,
                  team.purpose,
                  <When time={team.activated_at} />,
                ],
              }))}
            />
          )
        }
      </Loaded>
    </>
  );
}

/** The build is a run: its page shows the design, the checks and the proof while they are made. */
function Build() {
  const [goal, setGoal] = useState("");
  const [name, setName] = useState("");
  const [activate, setActivate] = useState(true);
  const build = useAction(async () => {
    const body = { goal, activate, ...(name === "" ? {} : { name }) };
    const { data, error } = await fetcher.POST("/v1/teams", { body: body as never });
    if (data) go(`/runs/${data.run_id}`);
    return error ? { error } : {};
  });
  return (
    <Card title={texts.teams.build}>
      <form className="stack" onSubmit={(event) => { event.preventDefault(); build.mutate(); }}>
        <label>
          {texts.teams.goal}
          <textarea required value={goal} onChange={(event) => setGoal(event.target.value)} />
        </label>
        <div className="row">
          <label>
            {texts.teams.name}
            <input value={name} onChange={(event) => setName(event.target.value)} pattern="[a-z][a-z0-9_]*" />
          </label>
          <label className="row">
            <input type="checkbox" checked={activate} onChange={(event) => setActivate(event.target.checked)} /> {texts.teams.activateAfter}
          </label>
        </div>
        {build.error ? <ProblemCard error={build.error} /> : null}
        <div><button className="main" disabled={build.isPending}>{texts.teams.build}</button></div>
      </form>
    </Card>
  );
}
