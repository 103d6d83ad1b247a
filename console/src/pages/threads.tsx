/** The conversations of the tenant. */

import { api } from "../api/client";
import { useFilter } from "../parts/address";
import { Empty, Heading, Loaded, Table, When } from "../parts/basics";
import { Link } from "../parts/router";
import { texts } from "../texts";

export default function Threads() {
  const [before, setBefore] = useFilter("before");
  const query = { limit: 50, ...(before === "" ? {} : { before }) };
  const threads = api.useQuery("get", "/v1/threads", { params: { query } });
  return (
    <>
      <Heading title={texts.nav.threads} />
      <Loaded of={threads}>
        {(page) =>
          page.threads.length === 0 ? (
            <Empty>{texts.threads.empty} <Link href="/ask">{texts.nav.ask}</Link></Empty>
          ) : (
            <>
              <Table
                label={texts.nav.threads}
                columns={[texts.run.thread, texts.runs.when, texts.threads.branches, texts.nav.runs]}
                rows={page.threads.map((thread) => ({
                  key: thread.id,
                  cells: [
                    <Link href={`/threads/${encodeURIComponent(thread.id)}`}>{thread.id}</Link>,
                    <When time={thread.created_at} />,
                    thread.branches.length,
                    thread.branches.reduce((runs, branch) => runs + branch.runs, 0),
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
