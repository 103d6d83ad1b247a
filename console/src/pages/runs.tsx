/** The runs of the tenant, newest first. */

import { api, type Schema } from "../api/client";
import { useFilter } from "../parts/address";
import { Badge, duration, Empty, Heading, Loaded, Table, When } from "../parts/basics";
import { Link } from "../parts/router";
import { texts } from "../texts";

const STATUSES: Schema<"RunStatus">[] = ["queued", "running", "waiting", "succeeded", "failed", "cancelled", "budget_exhausted", "parked"];

export default function Runs() {
  const [status, setStatus] = useFilter("status");
  const [thread] = useFilter("thread");
  const [before, setBefore] = useFilter("before");
  const query = {
    limit: 50,
    ...(status === "" ? {} : { status: status as Schema<"RunStatus"> }),
    ...(thread === "" ? {} : { thread_id: thread }),
    ...(before === "" ? {} : { before }),
  };
  const runs = api.useQuery("get", "/v1/runs", { params: { query } }, { refetchInterval: 5_000 });
  return (
    <>
      <Heading title={texts.runs.title}>
        <label className="row">
          {texts.run.status}
          <select value={status} onChange={(event) => { setBefore(""); setStatus(event.target.value); }}>
            <option value="">{texts.runs.anyStatus}</option>
            {STATUSES.map((one) => <option key={one} value={one}>{texts.state[one]}</option>)}
          </select>
        </label>
      </Heading>
      <Loaded of={runs}>
        {(page) =>
          page.runs.length === 0 ? (
            <Empty>{status + thread + before === "" ? texts.runs.empty : texts.runs.emptyStatus} <Link href="/ask">{texts.nav.ask}</Link></Empty>
          ) : (
            <>
              <Table
                label={texts.runs.title}
                columns={[texts.runs.request, texts.run.status, texts.runs.when, texts.runs.took, texts.run.thread]}
                rows={page.runs.map((run) => ({
                  key: run.run_id,
                  cells: [
                    <Link href={`/runs/${run.run_id}`}>{run.input.slice(0, 200) || run.run_id}</Link>,
                    <Badge state={run.status} />,
                    <When time={run.created_at} />,
                    duration(run.seconds),
                    <Link href={`/threads/${encodeURIComponent(run.thread_id)}`}>{run.thread_id}</Link>,
                  ],
                }))}
              />
              {before === "" ? null : <button onClick={() => setBefore("")}>{texts.newest}</button>}
              {page.next === null ? null : <button onClick={() => setBefore(page.next ?? "")}>{texts.more}</button>}
            </>
          )
        }
      </Loaded>
    </>
  );
}
